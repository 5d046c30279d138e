/*
 * Can a claim that ended without a grant keep the key?
 *
 * Two clients, each with a token of its own, want one key of one server. A
 * command or its answer may be lost or late, a lease may end at any time, and a
 * client may stop waiting at any time: what it has sent then still travels. A
 * client that has the key releases it, or leaves a receipt under it.
 *
 * Properties:
 *
 *   orphan    at rest, when both clients are done with their clean-up and no claim
 *             is under way, there is an entry that is no receipt. Its claim did not
 *             end in a grant, or landed again after the release: everybody is
 *             refused until its lease ends
 *   outlived  an entry is there for longer than one lease, counted from the
 *             landing of the claim that made it, although no client holds it
 *   changed   a receipt is removed
 *
 * Switches, all of them required:
 *
 *   PROPERTY  one of these, or ANY
 *   SENDS     how often client 1 may send its claim, with the same token: 1 or 2.
 *             The first is still under way when the second is sent
 *   STALLS    1: a server that was stalled takes what has arrived meanwhile in any
 *             order. 0: what has landed is applied before what is sent later
 *   GUARDED   1: the server refuses a claim that it comes to after not_after, the
 *             time at which its acquire would time out
 *   LONGER    1: a claim that meets the entry of its own token begins its lease anew
 *   SETTLES   1: a lease may be ended by a receipt. 2: and a delete compares the
 *             token, and not that the entry is no receipt
 *   LEASE     its length in ticks: 2, or 1 where the property does not count them
 *   REAP      what becomes of a claim of which a send was not answered before its
 *             acquire ended. It is dead. NOT: nothing; its clean-up was dropped, or
 *             no answer is taken for "not taken". Else the client deletes its
 *             entry, compared by token, until a delete is done with it, which is
 *               ONCE        every one that was answered
 *               FOUND       one that has found the entry, and as in RULES
 *               UNANSWERED  one that has found the entry, if all sends but one had
 *                           been answered when it was sent, and as in RULES
 *               AFTERWARDS  one after the answer to which all sends have been
 *                           answered, and as in RULES
 *               UNHEARD     as RULES, whether or not it was answered
 *               RULES       one that has found the entry, if no more than one send
 *                           can have made it that no delete or release has undone:
 *                           one that was not answered, or that was granted when
 *                           no caller waited; or one that was sent after the answers
 *                           to all sends; or one that was sent when the network
 *                           had no claim of the token any more. This model has no
 *                           time: the library knows that by its calls having
 *                           returned, and the longest delay of the network having
 *                           passed since (and not_after too)
 */

#define NOT 0
#define ONCE 1
#define FOUND 2
#define UNANSWERED 3
#define AFTERWARDS 4
#define UNHEARD 5
#define RULES 6

#define FREE 0

/* Where a command is. Zero: it was not sent, or it is over. A delete does not
   travel: a slower one could only come after more claims. */
mtype = { travels, buffered, answered };

byte entry = FREE;   /* the token of the entry that the server has */
byte receipt = FREE; /* or of the receipt */
byte left;           /* ticks, of the lease */
byte age;            /* of the entry, in ticks, from when it was made or let go */
mtype claim[4];      /* sends 0 and 1 are client 1's, 2 and 3 are client 2's */
bool replied[4];     /* the answer to it was read */
bool yes[4];         /* and said that it was granted */
bool undone[4];      /* and its lease was ended since */
mtype delete[2];
bool found[2];       /* it has */
bool settles[2];     /* it is a settle */
bool holds[2];
bool late[2];        /* not_after of its claim has passed */
byte done;           /* clients that are */
bool orphan, outlived, changed;
#define ANY (orphan || outlived || changed)

#define TOKEN (_pid + 1)
#define FIRST (2 * _pid)
#define AGAIN (2 * _pid + 1)

#define IN_FLIGHT(i) (STALLS && claim[i] == travels || !STALLS && claim[i])
#define SENT(i) (i == FIRST || again)
#define NOT_ANSWERED(i) (SENT(i) && !replied[i])
#define MAY_BE_THERE(i) (SENT(i) && (!replied[i] || yes[i] && !undone[i]))

/* Without an answer, the delete or its answer was lost. */
inline compare_and_delete(ok) {
	delete[_pid] = buffered;
	if
	:: d_step { delete[_pid] == answered -> ok = true; delete[_pid] = 0 }
	:: d_step { true -> ok = false; delete[_pid] = 0 }
	fi
}

active [2] proctype client() {
	bool again; /* the claim was sent again */
	bool ok, landed, all, one, over;

	d_step { claim[FIRST] = travels; printf("client %d claims\n", TOKEN) };
	do
	:: d_step { SENDS > 1 && _pid == 0 && !again ->
		again = true;
		claim[AGAIN] = travels;
		printf("client %d claims again\n", TOKEN) }
	:: atomic { yes[FIRST] || yes[AGAIN] -> holds[_pid] = true; undone[FIRST] = yes[FIRST]; undone[AGAIN] = yes[AGAIN]; break }
	:: (replied[FIRST] && !yes[FIRST]) || (replied[AGAIN] && !yes[AGAIN]) -> break
	:: atomic { printf("client %d gives up\n", TOKEN); break }
	od;

	if
	:: holds[_pid] -> /* it has worked, and releases, or settles */
		if
		:: SETTLES -> settles[_pid] = true
		:: true
		fi;
		do
		:: ok -> break
		:: else -> compare_and_delete(ok)
		od;
		atomic { ok = false; holds[_pid] = false; settles[_pid] = false; age = 0;
			printf("client %d has ended its lease\n", TOKEN) }
	:: else
	fi;

	if
	:: REAP != NOT && (MAY_BE_THERE(FIRST) || MAY_BE_THERE(AGAIN)) ->
		do
		:: over -> break
		:: else ->
			d_step {
				landed = !IN_FLIGHT(FIRST) && !IN_FLIGHT(AGAIN) && (!GUARDED || late[_pid]);
				all = !NOT_ANSWERED(FIRST) && !NOT_ANSWERED(AGAIN);
				one = REAP == FOUND ||
					REAP == UNANSWERED && !(NOT_ANSWERED(FIRST) && NOT_ANSWERED(AGAIN)) ||
					REAP >= AFTERWARDS && !(MAY_BE_THERE(FIRST) && MAY_BE_THERE(AGAIN));
				found[_pid] = false };
			compare_and_delete(ok);
			d_step {
				all = all || REAP == AFTERWARDS && !NOT_ANSWERED(FIRST) && !NOT_ANSWERED(AGAIN);
				over = (ok || REAP == UNHEARD) && (REAP == ONCE || landed || all || found[_pid] && one) }
		od;
		printf("client %d has cleaned up\n", TOKEN)
	:: else
	fi;
	atomic { again = false; ok = false; landed = false; all = false; one = false; over = false; done++ }
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

/* The answer is read, or it is lost. */
#define CLAIM(i, c) \
	:: atomic { claim[i] == buffered -> claim[i] = 0; \
		if \
		:: GUARDED && late[c] -> printf("a claim of client %d comes too late\n", c + 1) \
		:: else -> \
			if \
			:: entry == FREE && receipt == FREE -> entry = c + 1; left = LEASE; age = 0; \
				printf("a claim of client %d is applied\n", c + 1) \
			:: entry == c + 1 && LONGER -> left = LEASE \
			:: else \
			fi \
		fi; \
		if \
		:: replied[i] = true; yes[i] = entry == c + 1 && !(GUARDED && late[c]) \
		:: true \
		fi }

#define DELETE(c) \
	:: d_step { delete[c] == buffered -> delete[c] = answered; \
		if \
		:: entry == c + 1 -> entry = FREE; left = 0; age = 0; found[c] = true; \
			if \
			:: settles[c] -> receipt = c + 1; printf("client %d leaves a receipt\n", c + 1) \
			:: else -> printf("a delete of client %d removes its entry\n", c + 1) \
			fi \
		:: receipt == c + 1 && !settles[c] && SETTLES > 1 -> receipt = FREE; changed = true; \
			printf("a delete of client %d removes its receipt\n", c + 1) \
		:: else -> printf("a delete of client %d finds nothing\n", c + 1) \
		fi }

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
	:: d_step { entry != FREE ->
		left--;
		age = (holds[entry - 1] -> 0 : age + 1);
		if
		:: left == 0 -> entry = FREE; age = 0; printf("a lease ends\n")
		:: else -> outlived = age >= LEASE; printf("a part of a lease passes\n")
		fi }
	od
}

active proctype watch() {
end:	outlived || changed -> assert(!PROPERTY)
}

active proctype rest() {
	d_step { done == 2 && !claim[0] && !claim[1] && !claim[2] && !claim[3] ->
		orphan = entry != FREE;
		assert(!PROPERTY) }
}
