/*
 * What becomes of a takeover whose answer was lost?
 *
 * A run was begun as attempt 1 and its process has vanished: its entry is
 * abandoned. Two processes may run the same request again, each one call after the
 * other. A call claims with a token of its own: it takes a free key as attempt 1,
 * and an abandoned entry that it has met, by compare and swap, as the attempt after
 * that. A claim or its answer may be lost or late, and a lease may end at any time,
 * with which the lease of its holder is over too. A process keeps the tokens of the
 * takeovers that were not answered, and runs nothing for them.
 *
 * Properties:
 *
 *   overlapped  two processes run under a lease that both hold
 *   grown       a process has taken over from its own lost takeover, under which
 *               nothing was run: the attempt is one more than the runs that were begun
 *   forgotten   a run is not one more than the runs that were begun before it: it
 *               takes itself for the first
 *
 * Another process that takes over from a lost takeover cannot know that nothing was
 * run under it, and counts one too many. That is no part of them.
 *
 * Switches, all of them required:
 *
 *   PROPERTY  one of these, or ANY
 *   LOST      what a call does that meets the entry of a takeover that its own
 *             process has lost
 *               WAITS    nothing: it is refused, until the lease is over and it is
 *                        an abandoned entry like others
 *               DELETES  it deletes the entry, as it would that of another dead claim
 *               TRUSTS   it goes on as that attempt
 *               REPLACES it takes the entry over, held or abandoned, by compare and
 *                        swap, as that attempt
 */

#define WAITS 0
#define DELETES 1
#define TRUSTS 2
#define REPLACES 3

#define CALLS 3  /* of each process */
#define TOKENS 9 /* 1 is that of the process that vanished; the two have 2, 4, 6, 8 and 3, 5, 7, 9 */
#define OWNER(token) ((token) % 2)

mtype = { free, held, abandoned };

mtype state = abandoned;
byte entry = 1;
byte attempt = 1;
byte runs = 1;    /* begun so far */
bool ran[10];     /* under a token */

bool travels[10]; /* a claim with the token is on its way */
byte replaces[10];
bool heldToo[10]; /* it replaces a held entry, too */
byte claims[10];  /* the attempt that it claims */
bool lost[10];    /* a takeover with the token had no answer */
bool said[2];     /* there is an answer */
mtype met[2];     /* what it says is there */
byte metToken[2], metAttempt[2];
byte waiting[2];  /* for an answer to the claim of that token */
bool valid[2];    /* a process runs under a lease that it holds */
bool overlapped, grown, forgotten, adopted;
#define ANY (overlapped || grown || forgotten)

/* What a process has met is the entry of a takeover that it has lost. */
#define MINE (lost[metToken[_pid]] && OWNER(metToken[_pid]) == _pid)

/* A run begins if its lease is not over yet: its holder's clock says so, which began
   before the claim was sent. trusted: it does not look. */
inline begin(mine, nth, trusted) {
	d_step {
		if
		:: trusted || entry == mine && state == held ->
			valid[_pid] = true;
			overlapped = overlapped || (valid[0] && valid[1]);
			forgotten = forgotten || nth <= runs;
			adopted = adopted || lost[over];
			runs++;
			ran[mine] = true;
			printf("process %d runs attempt %d under token %d\n", _pid + 1, nth, mine)
		:: else
		fi }
	d_step { /* it ends without an answer that is kept: the next call runs again */
		if
		:: valid[_pid] && entry == mine && state == held -> state = abandoned
		:: else
		fi;
		valid[_pid] = false }
}

inline send(nth, over) {
	d_step {
		travels[token] = true;
		replaces[token] = over;
		heldToo[token] = too;
		claims[token] = nth;
		waiting[_pid] = token;
		said[_pid] = false;
		printf("process %d claims with token %d in place of %d\n", _pid + 1, token, over) }
}

inline next() {
	d_step {
		waiting[_pid] = 0;
		said[_pid] = false;
		token = token + 2;
		over = 0;
		too = false;
		nth = 1 }
}

active [2] proctype process() {
	byte token = 2 + _pid;
	byte nth = 1, over;
	bool too; /* what it replaces may be held */
	byte calls;

	do
	:: calls == CALLS || token > TOKENS -> break
	:: else ->
		send(nth, over);
		if
		:: said[_pid] ->
			if
			:: met[_pid] == held && metToken[_pid] == token ->
				begin(token, nth, false);
				calls++;
				next()
			:: met[_pid] != free && metToken[_pid] != token && MINE && LOST == DELETES ->
				d_step {
					if
					:: entry == metToken[_pid] -> state = free; entry = 0; attempt = 0
					:: else
					fi;
					printf("process %d deletes what it has lost\n", _pid + 1) };
				next()
			:: met[_pid] != free && metToken[_pid] != token && MINE && LOST == TRUSTS ->
				begin(metToken[_pid], metAttempt[_pid], true);
				lost[metToken[_pid]] = false;
				calls++;
				next()
			:: met[_pid] != free && metToken[_pid] != token && MINE && LOST == REPLACES ->
				d_step { waiting[_pid] = 0; said[_pid] = false;
					over = metToken[_pid];
					too = true;
					nth = metAttempt[_pid];
					token = token + 2 }
			:: met[_pid] == abandoned && metToken[_pid] != token && !(MINE && LOST != WAITS) ->
				d_step { grown = grown || MINE && !ran[metToken[_pid]];
					waiting[_pid] = 0; said[_pid] = false;
					over = metToken[_pid];
					too = false;
					nth = metAttempt[_pid] + 1;
					token = token + 2 }
			:: met[_pid] == free || met[_pid] == held && metToken[_pid] != token && !(MINE && LOST != WAITS) ->
				calls++;
				next()
			fi
		:: d_step { !said[_pid] ->
			lost[token] = over != 0;
			printf("process %d gives up with token %d\n", _pid + 1, token);
			calls++ };
			next()
		fi
	od
}

#define CLAIM(t) \
	:: d_step { travels[t] -> travels[t] = false; \
		if \
		:: state == free && !replaces[t] || \
			(state == abandoned || state == held && heldToo[t]) && replaces[t] && entry == replaces[t] -> \
			state = held; entry = t; attempt = claims[t]; \
			printf("the claim of token %d is applied\n", t) \
		:: else \
		fi; \
		if \
		:: waiting[OWNER(t)] == t -> \
			said[OWNER(t)] = true; met[OWNER(t)] = state; \
			metToken[OWNER(t)] = entry; metAttempt[OWNER(t)] = attempt \
		:: else \
		fi } \
	:: d_step { travels[t] -> travels[t] = false; printf("the claim of token %d is lost\n", t) }

active proctype server() {
end:	do
	CLAIM(2)
	CLAIM(3)
	CLAIM(4)
	CLAIM(5)
	CLAIM(6)
	CLAIM(7)
	CLAIM(8)
	CLAIM(9)
	:: d_step { state == held ->
		state = abandoned;
		valid[OWNER(entry)] = false;
		printf("the lease of token %d ends\n", entry) }
	od
}

active proctype watch() {
end:	PROPERTY -> assert(!PROPERTY)
}

/* Comes to its end if a lost takeover was run in some execution. */
active proctype adoption() {
end:	adopted
}
