/*
 * What is a lease worth once it has ended?
 *
 * Two clients take a key in turn and write to a resource under it. A lease may
 * end at any time, and a client may be paused at any point, for as long as it
 * takes: it then writes in the belief that it still holds the key. How claims
 * reach the server is no part of this model.
 *
 * Switches, all of them required:
 *
 *   PROPERTY  what must never be
 *               overwritten  a write of an older grant after one of a newer grant
 *               overlapped   a write under a lease that has ended
 *   CHECKS    1: before each write, a client looks whether its lease still runs
 *   FENCED    1: a write bears the fence, or fencing token, of its grant, and the
 *             resource refuses one that is lower than the highest it has seen
 *   FORGETS   1: the fences of a key start again when its entry is gone
 */

#define FREE 0
#define CLAIMS 3 /* of each client */
#define WRITES 2 /* under each grant */

byte entry = FREE; /* the grant whose lease runs; they are numbered */
byte grants;       /* so far */
byte fences;       /* the last one that was given */
byte highest;      /* fence that the resource has seen */
byte newest;       /* grant that has written to it */
bool overwritten, overlapped, refused;

inline free() {
	entry = FREE;
	if
	:: FORGETS -> fences = 0
	:: else
	fi
}

inline write() {
	if
	:: FENCED && fence < highest ->
		refused = true;
		printf("the write of grant %d is refused\n", grant)
	:: else ->
		highest = (fence > highest -> fence : highest);
		overwritten = overwritten || grant < newest;
		overlapped = overlapped || grant != entry;
		newest = (grant > newest -> grant : newest);
		printf("grant %d writes\n", grant)
	fi
}

active [2] proctype client() {
	byte grant, fence, claims, writes;

	do
	:: claims == CLAIMS -> break
	:: else ->
		d_step { entry == FREE ->
			claims++;
			grants++;
			fences++;
			entry = grants;
			grant = grants;
			fence = fences;
			printf("client %d has grant %d with fence %d\n", _pid + 1, grant, fence) };
		do
		:: writes == WRITES -> break
		:: else ->
			if
			:: !CHECKS
			:: CHECKS && entry == grant -> printf("a check says that grant %d runs\n", grant)
			:: CHECKS && entry != grant -> break
			fi;
			d_step { writes++; write() };
			assert(!PROPERTY)
		od;
		atomic {
			if
			:: entry == grant -> free(); printf("grant %d is released\n", grant)
			:: else
			fi;
			grant = 0;
			fence = 0;
			writes = 0 }
	od
}

active proctype server() {
end:	do
	:: d_step { entry != FREE -> printf("the lease of grant %d ends\n", entry); free() }
	od
}

/* Comes to its end if a fence has refused a write in some execution. */
active proctype refusal() {
end:	refused
}
