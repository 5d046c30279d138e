/*
 * Are all keys of a set taken, or none?
 *
 * Two clients, in two processes, want the same two keys at once, each of them twice and with
 * a new token each time. A command or its answer may be lost or late, a command may be sent again
 * with its token, and a client may stop waiting at any time. Then its token is dead, and its
 * process cleans up behind it. No lease ends here, so that only a client or its clean-up
 * frees a key.
 *
 * Properties:
 *
 *   torn      a client works, and one of its keys is not held by its token. As a key is held by
 *             one token, this is also one-holder
 *   stuck     each client has one key, and waits for the other's
 *   neither   both first claims were refused, by each other: none was granted, and no client
 *             had stopped waiting before
 *   orphan    a key stays taken when both clients are done and nothing travels
 *
 * Switches, all of them required:
 *
 *   PROPERTY one of these, or ANY
 *   HOW      the claim of a set. ONCE: one command for all keys, that takes all or none. PART:
 *            one command that takes those that are free, and is granted with the last of
 *            them. SORTED: a command for each key, in one order for all clients. OWN: in an order of
 *            its own
 *   WAITS    1: a client that is refused asks again for the same key
 *   RELEASES ALL: when the work is over. EARLY: the first key while the work runs
 *   CLEANS   what is removed behind a dead token. BOTH keys. FIRST: that of the first. NONE
 *   KNOWS    1: the token of a set that was released is dead if one of its sends has no answer
 */

#define ONCE 1
#define PART 2
#define SORTED 3
#define OWN 4

#define ALL 1
#define EARLY 2

#define BOTH 1
#define FIRST 2
#define NONE 3

#define FREE 0
#define TOKENS 4 /* 1 and 3 are the first client's, 2 and 4 are the second's */
#define OWNER(token) ((token + 1) % 2)

#define NOTHING 0
#define GRANTED 1
#define REFUSED 2

byte entry[2];            /* the token that has each key */
byte travels[5];          /* how many claims of both keys of a token do, to the server */
bool wants0[5];           /* a claim of one key of a token does */
bool wants1[5];
byte answer[2];           /* to the command of each client */
byte trying[2];           /* the token of each client */
byte asks[2];             /* the key that it asks for, if it asks for one */
bool doubt[5];            /* a send of a token had no answer */
bool dead[5];
bool holds[2], first[2];  /* it has all keys, it has the first of them */
bool torn, stuck, neither, orphan, granted, gone;
bool refused[2];
byte over;

#define KEY(n) (HOW == OWN && _pid == 1 -> 1 - (n) : (n))
#define SECOND(c) (HOW == OWN && c == 1 -> 0 : 1)
#define STUCK(c) (first[c] && !holds[c] && first[1 - c] && !holds[1 - c] && entry[SECOND(c)] && OWNER(entry[SECOND(c)]) != c)
#define STUCK_BOTH (STUCK(0) && STUCK(1))

#define CLEANED(k) (dead[entry[k]] && (CLEANS == BOTH || CLEANS == FIRST && k == 0))
#define STAYS(k) (entry[k] != FREE && !CLEANED(k))
#define QUIET (!travels[1] && !travels[2] && !travels[3] && !travels[4] && \
	!wants0[1] && !wants0[2] && !wants0[3] && !wants0[4] && !wants1[1] && !wants1[2] && !wants1[3] && !wants1[4])
#define ORPHAN (over == 2 && QUIET && (STAYS(0) || STAYS(1)))
#define ANY (torn || stuck || neither || orphan)

#define TORN(c) (holds[c] && (entry[0] != trying[c] || entry[1] != trying[c]))

inline look() { torn = torn || TORN(0) || TORN(1) }

inline free(k) {
	if
	:: entry[k] == token -> entry[k] = FREE
	:: else
	fi
}

inline ask(n) {
	answer[_pid] = NOTHING;
	if
	:: HOW == ONCE || HOW == PART -> travels[token]++
	:: else ->
		asks[_pid] = KEY(n);
		if
		:: KEY(n) == 0 -> wants0[token] = true
		:: else -> wants1[token] = true
		fi
	fi
}

active [2] proctype client() {
	byte token = _pid + 1;
	byte n;

	do
	:: token > TOKENS -> break
	:: else ->
		n = 0;
		atomic { trying[_pid] = token; ask(n) };
		do
		:: atomic { answer[_pid] == NOTHING && !doubt[token] ->
			doubt[token] = true; ask(n); /* sent again, and the first send is still on its way or lost */
			printf("client %d asks again with token %d\n", _pid + 1, token) }
		:: atomic { answer[_pid] == GRANTED && (HOW == SORTED || HOW == OWN) && n == 0 ->
			first[_pid] = true; n = 1; ask(n);
			printf("client %d has its first key with token %d\n", _pid + 1, token) }
		:: atomic { answer[_pid] == GRANTED && (HOW == ONCE || HOW == PART || n == 1) ->
			holds[_pid] = true; granted = true; look();
			printf("client %d works with token %d\n", _pid + 1, token) };
			if
			:: RELEASES == EARLY -> atomic { free(KEY(0)); look() }
			:: else
			fi;
			atomic { /* it has worked, and releases */
				holds[_pid] = false; free(0); free(1);
				dead[token] = KNOWS && doubt[token] };
			break
		:: atomic { answer[_pid] == REFUSED && WAITS -> ask(n) }
		:: atomic { answer[_pid] == REFUSED && !WAITS ->
			refused[_pid] = true;
			neither = neither || refused[0] && refused[1] && !granted && !gone;
			free(0); free(1);
			dead[token] = doubt[token];
			printf("client %d is refused with token %d\n", _pid + 1, token) };
			break
		:: atomic { answer[_pid] == NOTHING ->
			gone = true; dead[token] = true; /* also the keys that it has are removed by clean-up */
			printf("client %d gives up token %d\n", _pid + 1, token) };
			break
		od;
		atomic { first[_pid] = false; trying[_pid] = 0; answer[_pid] = NOTHING; token = token + 2 }
	od;
	over++
}

#define REPLY(t, what) \
	if \
	:: trying[OWNER(t)] == t && answer[OWNER(t)] == NOTHING -> answer[OWNER(t)] = what \
	:: else \
	fi

#define OURS(k, t) (entry[k] == FREE || entry[k] == t)

#define CLAIM(t) \
	:: d_step { travels[t] -> travels[t]--; \
		if \
		:: OURS(0, t) && OURS(1, t) -> entry[0] = t; entry[1] = t; REPLY(t, GRANTED); printf("token %d has both keys\n", t) \
		:: else -> \
			if \
			:: HOW == PART && OURS(1, t) -> entry[1] = t; REPLY(t, GRANTED) \
			:: HOW == PART && OURS(0, t) -> entry[0] = t; REPLY(t, REFUSED) \
			:: else -> REPLY(t, REFUSED) \
			fi \
		fi } \
	:: d_step { travels[t] -> travels[t]--; doubt[t] = true }

#define TAKE(k, wants, t) \
	:: d_step { wants[t] -> wants[t] = false; \
		if \
		:: OURS(k, t) -> entry[k] = t; printf("token %d has key %d\n", t, k); \
			if \
			:: asks[OWNER(t)] == k -> REPLY(t, GRANTED) \
			:: else \
			fi \
		:: else -> \
			if \
			:: asks[OWNER(t)] == k -> REPLY(t, REFUSED) \
			:: else \
			fi \
		fi } \
	:: d_step { wants[t] -> wants[t] = false; doubt[t] = true }

active proctype server() {
end:	do
	CLAIM(1)
	CLAIM(2)
	CLAIM(3)
	CLAIM(4)
	TAKE(0, wants0, 1)
	TAKE(0, wants0, 2)
	TAKE(0, wants0, 3)
	TAKE(0, wants0, 4)
	TAKE(1, wants1, 1)
	TAKE(1, wants1, 2)
	TAKE(1, wants1, 3)
	TAKE(1, wants1, 4)
	od
}

/* Cleans up behind dead tokens. */
active proctype reaper() {
end:	do
	:: d_step { entry[0] && CLEANED(0) -> entry[0] = FREE }
	:: d_step { entry[1] && CLEANED(1) -> entry[1] = FREE }
	od
}

active proctype watch() {
end:	if
	:: d_step { STUCK_BOTH -> stuck = true }
	:: d_step { ORPHAN -> orphan = true }
	:: torn || neither
	fi;
end2:	PROPERTY -> assert(!PROPERTY)
}

/* Comes to its end if a set was granted in some execution after a client had stopped waiting. */
active proctype grant() {
end:	granted && gone
}
