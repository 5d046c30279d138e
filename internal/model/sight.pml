/*
 * May an acquire delete an entry of its own process that is in its way?
 *
 * A claim that got no answer may have been applied. Its process must not be
 * locked out by it until it is cleaned up, so the next acquire that is refused
 * by it deletes it on sight. But a claim that was applied and whose answer is on
 * its way looks the same to another acquire of the process that meets it.
 *
 * Two clients of one process want one key, again and again, with a new token for
 * each claim. A command or its answer may be lost or late, and a client may stop
 * waiting at any time. No lease ends here, so that only a delete can take the
 * key from its holder.
 *
 * Properties:
 *
 *   evicted   a lease loses its entry before its holder releases it
 *   locked    an acquire is refused by the entry of a claim of its own process that
 *             has ended without an answer
 *
 * Switches, all of them required:
 *
 *   PROPERTY one of these, or ANY
 *   DELETES  the tokens whose entry is deleted on sight. UNKNOWN: those of the
 *            process that none of its clients is known to hold the key with.
 *            DEAD: those of acquires that are known to have ended unanswered
 *   KNOWS    for how long the process knows a token as dead. FOREVER: from the end of
 *            its acquire on. LATER: from some time after that on. SWEPT: until its
 *            clean-up is over, which does not see to it that nothing lands any more,
 *            or was dropped
 *   GATE     1: only one client of the process at a time claims or holds the key
 */

#define UNKNOWN 1
#define DEAD 2

#define FOREVER 1
#define LATER 2
#define SWEPT 3

#define FREE 0
#define TOKENS 4 /* 1 and 3 are client 1's, 2 and 4 are client 2's */
#define OWNER(token) ((token + 1) % 2)

byte entry = FREE;        /* the token of the entry that the server has */
bool travels[TOKENS + 1]; /* the claim of a token does, to the server */
byte delete[2];           /* the token that a client wants deleted; so does this */
bool deleted[2];          /* and the answer to it */
byte trying[2];           /* the token that a client claims or holds the key with */
byte answer[2];           /* to its claim: the token that is under the key */
bool robbed[2];           /* its entry was deleted on sight */
bool evicted, locked, cleared;
#define ANY (evicted || locked)

/* What all clients of the process see. */
bool holds[2];
bool dead[TOKENS + 1];
bool ended[TOKENS + 1];   /* without an answer: it is to be known as dead */
byte gate;                /* the client that may claim or hold the key */

#define ON_SIGHT(token) ( \
	DELETES == UNKNOWN && !(holds[OWNER(token)] && trying[OWNER(token)] == token) || \
	DELETES == DEAD && dead[token])

/* Without an answer, the delete or its answer was lost. */
inline compare_and_delete(token, ok) {
	delete[_pid] = token;
	if
	:: d_step { deleted[_pid] -> ok = true; deleted[_pid] = false }
	:: d_step { true -> ok = false; deleted[_pid] = false; delete[_pid] = 0 }
	fi
}

/* The client is done with its token, and goes on with its next one. */
inline next() {
	trying[_pid] = 0;
	answer[_pid] = 0;
	robbed[_pid] = false;
	token = token + 2
}

active [2] proctype client() {
	byte token = _pid + 1;
	byte blocker;
	bool ok;

	do
	:: token > TOKENS -> break
	:: else ->
		atomic { !GATE || !gate -> gate = _pid + 1 };
		do
		:: token > TOKENS -> break
		:: else ->
			d_step {
				trying[_pid] = token;
				travels[token] = true;
				printf("client %d claims with token %d\n", _pid + 1, token) };
			if
			:: d_step { answer[_pid] == token ->
				holds[_pid] = true;
				evicted = evicted || robbed[_pid];
				printf("client %d holds the key with token %d\n", _pid + 1, token) };
				holds[_pid] = false; /* it has worked, and releases */
				do
				:: ok -> break
				:: else -> compare_and_delete(token, ok)
				od;
				atomic { next(); ok = false; break }
			:: d_step { answer[_pid] && answer[_pid] != token ->
				blocker = answer[_pid];
				printf("client %d is refused by token %d\n", _pid + 1, blocker);
				next() };
				if
				:: ON_SIGHT(blocker) -> compare_and_delete(blocker, ok)
				:: atomic { !ON_SIGHT(blocker) -> locked = locked || ended[blocker] }
				fi;
				blocker = 0;
				if
				:: ok -> atomic { ok = false; cleared = true } /* it claims again */
				:: else -> break
				fi
			:: atomic { printf("client %d gives up\n", _pid + 1);
				ended[token] = true;
				dead[token] = KNOWS != LATER;
				next();
				break }
			fi
		od;
		gate = 0
	od
}

#define CLAIM(t) \
	:: d_step { travels[t] -> travels[t] = false; \
		if \
		:: entry == FREE -> entry = t; printf("the claim with token %d is applied\n", t) \
		:: else \
		fi; \
		if \
		:: trying[OWNER(t)] == t -> answer[OWNER(t)] = entry \
		:: else \
		fi } \
	:: travels[t] -> travels[t] = false

#define DELETE(c) \
	:: d_step { delete[c] -> \
		if \
		:: entry == delete[c] -> \
			printf("client %d deletes the entry of token %d\n", c + 1, entry); \
			if \
			:: trying[OWNER(entry)] == entry -> \
				robbed[OWNER(entry)] = true; \
				evicted = evicted || holds[OWNER(entry)] \
			:: else \
			fi; \
			entry = FREE \
		:: else \
		fi; \
		delete[c] = 0; \
		deleted[c] = true }

active proctype server() {
end:	do
	CLAIM(1)
	CLAIM(2)
	CLAIM(3)
	CLAIM(4)
	DELETE(0)
	DELETE(1)
	od
}

/* Cleans up after dead tokens. */
#define SWEEP(t) \
	:: d_step { dead[t] && entry == t -> entry = FREE } \
	:: d_step { KNOWS == LATER && ended[t] && !dead[t] -> dead[t] = true } \
	:: d_step { KNOWS == SWEPT && dead[t] && entry != t -> dead[t] = false; \
		printf("token %d is forgotten\n", t) }

active proctype reaper() {
end:	do
	SWEEP(1)
	SWEEP(2)
	SWEEP(3)
	SWEEP(4)
	od
}

active proctype watch() {
end:	PROPERTY -> assert(!PROPERTY)
}

/* Comes to its end if an acquire has claimed again in some execution. */
active proctype removal() {
end:	cleared
}
