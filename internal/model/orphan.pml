/*
 * Can a claim that nobody waits for any more keep the key?
 *
 * Two clients, each with a token of its own, want one key of one server. A
 * command or its answer may be lost or late, a lease may end at any time, and a
 * client may stop waiting at any time: what it has sent then still travels.
 *
 * The property: at rest, when both clients are done with their clean-up and no
 * claim is under way, the key is free. An entry that is still there is an
 * orphan: its claim did not end in a grant, or landed again after the release.
 * Nobody holds the key, and everybody is refused until the orphan's lease ends.
 *
 * Switches, all of them required:
 *
 *   SENDS    how often a claim may be sent, with the same token: 1 or 2
 *   GUARDED  1: the server refuses a claim that it comes to after not_after, the
 *            time at which its acquire would time out
 *   REAP     what becomes of a claim of which a send was not answered, however
 *            it ended. NOT: nothing, no answer is taken for "not taken". Else
 *            the client deletes its entry, compared by token, until a delete is
 *            answered that counts, which is
 *              ANY       every one
 *              LATE      every one, and none is sent before not_after. After a
 *                        time-out that is at once, but not after a caller that
 *                        went away, nor after a short lease
 *              LANDED    one that was sent when the network had no claim of the
 *                        token any more. This model has no time: the library
 *                        knows that by its calls having returned, and the
 *                        longest delay of the network having passed since
 *              ANSWERED  a LANDED one that was sent after the answer to another
 *              TWICE     a LANDED one that was sent after the answer to another
 *                        LANDED one
 */

#define NOT 0
#define ANY 1
#define LATE 2
#define LANDED 3
#define ANSWERED 4
#define TWICE 5

#define FREE 0

/* Where a command is. Zero: it was not sent, or it is over. A delete does not
   travel: a slower one could only come after more claims. */
mtype = { travels, buffered, answered };

byte entry = FREE; /* the token of the entry that the server has */
mtype claim[4];    /* sends 0 and 1 are client 1's, 2 and 3 are client 2's */
mtype delete[2];
bool waits[2];     /* a client does, for an answer to its claim */
bool granted[2];   /* there is one that says yes */
bool refused[2];   /* there is one that says no */
bool late[2];      /* not_after of its claim has passed */
byte done;         /* clients that are */
bool orphan;

#define TOKEN (_pid + 1)
#define FIRST (2 * _pid)
#define AGAIN (2 * _pid + 1)

/* Without an answer, the delete or its answer was lost. */
inline compare_and_delete(ok) {
	delete[_pid] = buffered;
	if
	:: d_step { delete[_pid] == answered -> ok = true; delete[_pid] = 0 }
	:: d_step { true -> ok = false; delete[_pid] = 0 }
	fi
}

active [2] proctype client() {
	bool again;             /* the claim was sent again */
	bool unanswered = true; /* a send of it was not answered */
	bool ok, landed, proven, counts;

	d_step { waits[_pid] = true; claim[FIRST] = travels; printf("client %d claims\n", TOKEN) };
	do
	:: d_step { SENDS > 1 && !again ->
		again = true;
		claim[AGAIN] = travels;
		printf("client %d claims again\n", TOKEN) }
	:: atomic { granted[_pid] -> ok = true; unanswered = again; break }
	:: atomic { refused[_pid] -> unanswered = again; break }
	:: atomic { printf("client %d gives up\n", TOKEN); break }
	od;
	atomic { waits[_pid] = false; granted[_pid] = false; refused[_pid] = false; again = false };

	if
	:: ok -> /* it has worked, and releases */
		ok = false;
		do
		:: ok -> break
		:: else -> compare_and_delete(ok)
		od;
		printf("client %d has released\n", TOKEN)
	:: else
	fi;

	if
	:: REAP != NOT && unanswered ->
		ok = false;
		REAP != LATE || late[_pid];
		do
		:: ok && counts -> break
		:: else ->
			d_step {
				landed = claim[FIRST] != travels && claim[AGAIN] != travels;
				counts = (REAP < LANDED || landed) && (REAP < ANSWERED || proven) };
			compare_and_delete(ok);
			proven = proven || ok && (landed || REAP == ANSWERED)
		od;
		printf("client %d has cleaned up\n", TOKEN)
	:: else
	fi;
	atomic { ok = false; landed = false; proven = false; counts = false; unanswered = false; done++ }
}

#define LAND(i, c) \
	:: d_step { claim[i] == travels -> claim[i] = buffered; printf("a claim of client %d lands\n", c + 1) } \
	:: d_step { claim[i] == travels -> claim[i] = 0; printf("a claim of client %d is lost\n", c + 1) }

active proctype network() {
end:	do
	LAND(0, 0)
	LAND(1, 0)
	LAND(2, 1)
	LAND(3, 1)
	:: GUARDED && !late[0] -> late[0] = true
	:: GUARDED && !late[1] -> late[1] = true
	od
}

#define CLAIM(i, c) \
	:: d_step { claim[i] == buffered -> claim[i] = 0; \
		if \
		:: GUARDED && late[c] -> \
			refused[c] = refused[c] || waits[c]; \
			printf("a claim of client %d comes too late\n", c + 1) \
		:: else -> \
			if \
			:: entry == FREE -> entry = c + 1; printf("a claim of client %d is applied\n", c + 1) \
			:: else \
			fi; \
			granted[c] = granted[c] || waits[c] && entry == c + 1; \
			refused[c] = refused[c] || waits[c] && entry != c + 1 \
		fi }

#define DELETE(c) \
	:: d_step { delete[c] == buffered -> delete[c] = answered; \
		if \
		:: entry == c + 1 -> entry = FREE; printf("a delete of client %d removes its entry\n", c + 1) \
		:: else -> printf("a delete of client %d finds nothing\n", c + 1) \
		fi }

/* A server that was stalled takes all that has arrived meanwhile at once, and
   works it off in any order. What arrives then has to wait for the next turn. */
active proctype server() {
end:	do
	:: atomic {
		claim[0] == buffered || claim[1] == buffered || claim[2] == buffered || claim[3] == buffered ||
		delete[0] == buffered || delete[1] == buffered ->
		do
		CLAIM(0, 0)
		CLAIM(1, 0)
		CLAIM(2, 1)
		CLAIM(3, 1)
		DELETE(0)
		DELETE(1)
		:: else -> break
		od }
	:: d_step { entry != FREE -> entry = FREE; printf("a lease ends\n") }
	od
}

active proctype rest() {
	d_step { done == 2 && !claim[0] && !claim[1] && !claim[2] && !claim[3] ->
		orphan = entry != FREE;
		assert(!orphan) }
}
