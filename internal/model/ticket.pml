/*
 * Is a key that was handed over resumed, or free, and never both?
 *
 * A holder replaces its own token with the token of a ticket, and gives the ticket to a queue that
 * delivers it to two workers. Each worker replaces the token of the ticket with its own. The time
 * of the ticket may end at any moment while it waits: then the key is free, and another client may
 * take it. A command or its answer may be lost or late, and may be sent again. A caller may
 * stop waiting at any time: then its tokens are dead, and are removed.
 *
 * Properties:
 *
 *   both      a worker works under the ticket while another client works
 *   twice     a ticket was resumed twice
 *   stranded  a key stays taken when all are done, nothing travels and the time of the ticket is over
 *
 * Switches, all of them required:
 *
 *   PROPERTY one of these, or ANY
 *   TAKES    what a claim with the token of another takes. TOKEN: the entry of that token.
 *            FREEKEY: a free key as well. HOLDER: the entry of any holder
 *   DOUBT    1: a send of the holder's own claim had no answer, and is still on its way
 *   SENDS    how often the claim of the ticket may be sent
 *   CLEANS   1: what a caller without an answer may have left is removed
 */

#define TOKEN 1
#define FREEKEY 2
#define HOLDER 3

#define FREE 0
#define OLD 1    /* the token of the holder */
#define TICKET 2
#define NEXT 3   /* 3 and 4 are the workers' */
#define OTHER 5

#define NOTHING 0
#define GRANTED 1
#define REFUSED 2

byte entry = OLD;
byte travels[6];     /* how many sends of a token's claim are on their way */
byte answer[6];
bool waits[6];       /* for an answer */
bool dead[6];
bool works[6];
bool out;            /* the ticket was enqueued */
byte resumed, over;
bool both, twice, stranded;

#define BOTH (works[OTHER] && (works[NEXT] || works[NEXT + 1]))
#define TWICE (resumed > 1)
#define QUIET (!travels[OLD] && !travels[TICKET] && !travels[NEXT] && !travels[NEXT + 1] && !travels[OTHER])
#define STRANDED (over == 4 && QUIET && entry != FREE && entry != TICKET && !(CLEANS && dead[entry]))
#define ANY (both || twice || stranded)

inline send(t) { travels[t]++; waits[t] = true }

inline release(t) {
	works[t] = false;
	if
	:: entry == t -> entry = FREE
	:: else
	fi
}

active proctype holder() {
	byte sent = 1;

	d_step {
		travels[OLD] = DOUBT;
		dead[OLD] = true; /* from the hand-over on the entry of its own token has no holder */
		send(TICKET) };
	do
	:: d_step { answer[TICKET] == NOTHING && sent < SENDS -> sent++; send(TICKET); printf("the hand-over is sent again\n") }
	:: d_step { answer[TICKET] == GRANTED -> waits[TICKET] = false; out = true; printf("the ticket is enqueued\n") };
		break
	:: d_step { answer[TICKET] == REFUSED || answer[TICKET] == NOTHING ->
		waits[TICKET] = false; dead[TICKET] = true; release(OLD); printf("there is no ticket\n") };
		break
	od;
	over++
}

active [2] proctype worker() {
	byte me = NEXT + _pid - 1;
	byte sent;

	if
	:: goto end /* it gets no ticket */
	:: out -> sent = 1; d_step { send(me) }
	fi;
	do
	:: d_step { answer[me] == NOTHING && sent < 2 -> sent++; send(me) }
	:: d_step { answer[me] == GRANTED -> waits[me] = false; resumed++; works[me] = true; printf("worker %d works\n", me) };
		d_step { release(me); dead[me] = true };
		break
	:: d_step { answer[me] == REFUSED || answer[me] == NOTHING -> waits[me] = false; dead[me] = true; printf("worker %d has no lease\n", me) };
		break
	od;
end:	over++
}

/* Wants the key for itself, once. */
active proctype other() {
	d_step { send(OTHER) };
	if
	:: d_step { answer[OTHER] == GRANTED -> waits[OTHER] = false; works[OTHER] = true; printf("the other client works\n") };
		d_step { release(OTHER); dead[OTHER] = true }
	:: d_step { answer[OTHER] == REFUSED || answer[OTHER] == NOTHING -> waits[OTHER] = false; dead[OTHER] = true }
	fi;
	over++
}

#define REPLY(t, what) \
	if \
	:: waits[t] && answer[t] == NOTHING -> answer[t] = what \
	:: else \
	fi

#define ARRIVES(t, takes) \
	:: d_step { travels[t] -> travels[t]--; \
		if \
		:: entry == t || (takes) -> entry = t; REPLY(t, GRANTED); printf("token %d has the key\n", t) \
		:: else -> REPLY(t, REFUSED) \
		fi } \
	:: d_step { travels[t] -> travels[t]-- }

#define REPLACES(of) (entry == (of) || TAKES == FREEKEY && entry == FREE || TAKES == HOLDER && entry != FREE)

active proctype server() {
end:	do
	ARRIVES(OLD, entry == FREE)
	ARRIVES(TICKET, REPLACES(OLD))
	ARRIVES(NEXT, REPLACES(TICKET))
	ARRIVES(NEXT + 1, REPLACES(TICKET))
	ARRIVES(OTHER, entry == FREE)
	:: d_step { entry == TICKET -> entry = FREE; printf("the time of the ticket is over\n") }
	od
}

/* Removes the entries of dead tokens. */
active proctype reaper() {
end:	do
	:: d_step { CLEANS && entry && dead[entry] -> entry = FREE }
	od
}

active proctype watch() {
end:	if
	:: d_step { BOTH -> both = true }
	:: d_step { TWICE -> twice = true }
	:: d_step { STRANDED -> stranded = true }
	fi;
end2:	PROPERTY -> assert(!PROPERTY)
}

/* Comes to its end if a worker and the other client have both worked in some execution. */
active proctype turns() {
end:	works[NEXT];
end2:	works[OTHER]
}
