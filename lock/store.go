package lock

import (
	"context"
	"time"
)

// Store keeps the entries that a [Locker] works on. Most people use
// package memstore or redisstore; to write your own, implement these five
// methods, about a hundred lines, and hold them to latchtest.TestStore, which
// checks every rule below by name.
//
// Rules for all methods:
//
//   - One call is one attempt, and never retried by the store: budget, retries and
//     jitter are the Locker's.
//   - A call returns when its context ends, whatever becomes of the command. It is
//     made on the goroutine of the Locker's caller, which waits for nothing else. A
//     store that cannot keep this is passed through [EndWithContext].
//   - err means that the backend failed, never "no". An error that matches
//     [ErrNotApplied] says that the call certainly had no effect and will have
//     none later; every other error means "unknown". One that matches
//     [ErrDenied] or [ErrFull] in addition would be the answer to the same call
//     for the rest of its budget, and ends it.
//   - For one token every method may be sent again, and later calls find what
//     the earlier ones did.
//   - Lease and linger are judged by the store's own clock, and by the linger
//     that is stored in the entry, not by the caller's.
//   - Keys (1 to 1,024 bytes) and tokens (1 to 255 bytes) are opaque bytes:
//     "tok1" and "tok10" are two tokens, whatever the encoding.
//   - Settle and Release get the claim as it was last claimed or renewed, as far as
//     the caller knows, so that a store can tell what it has stored. Only c.Token
//     decides: the rest may be missing, or differ from the entry.
//   - Slices are copied in and out. An absent entry is the zero [Entry].
//   - Methods are safe for concurrent use.
//
// What a store can do beyond that it says by further methods: [Inspector], [Pager],
// [Watcher], [Checker], [ServerLister], [Transactor] and [Describer]. A wrapper hands on those of the
// store within that it wants to keep.
type Store interface {
	// Claim takes key for c.Token if it is free, and returns what is there
	// afterwards. The claim was granted exactly if the returned entry is [Held]
	// and bears c.Token:
	//
	//   - absent or Free: taken, if c.Replaces is ""
	//   - Held by c.Token: granted again (the answer to an earlier send was lost)
	//   - Abandoned, and c.Replaces is its token: taken, in one atomic step
	//   - anything else: unchanged, whatever token it has
	//
	// A claim with c.Replaces is a takeover or nothing. If what it was to replace
	// has ended, the key stays free: such a claim can land long after its caller has
	// given it up, and no caller would know of the entry that it leaves.
	//
	// A [Settled] entry of c.Token is a receipt, not a grant. A store that has
	// no fences answers a claim with Fenced set with errors.ErrUnsupported.
	Claim(ctx context.Context, key string, c Claim) (Entry, error)

	// Renew makes the lease of c.Token end no earlier than c.Lease from now, and
	// its linger no shorter than c.Linger. It never shortens either, and never
	// creates an entry. ok is false if the entry is not Held or Abandoned by
	// c.Token.
	Renew(ctx context.Context, key string, c Claim) (ok bool, err error)

	// Settle turns the entry of c.Token, Held or Abandoned, into a receipt that
	// is kept for keep. Settled by the same token already: ok, and unchanged.
	// ok is false if the entry is not the token's. A store that has no room for the
	// receipt, and none by trying again, returns [ErrFull]; the Locker then settles
	// an empty one, which has to fit where the claim did.
	Settle(ctx context.Context, key string, c Claim, receipt []byte, keep time.Duration) (ok bool, err error)

	// Release removes the entry if it is Held or Abandoned by c.Token. It never
	// removes a receipt.
	Release(ctx context.Context, key string, c Claim) (ok bool, err error)

	// Get reads the entry where it is authoritative: not from a replica, not
	// from a client-side cache.
	Get(ctx context.Context, key string) (Entry, error)
}

// Claim is what a caller asks for in [Store.Claim] and [Store.Renew], and what
// [Store.Settle] and [Store.Release] end.
type Claim struct {
	Token       string        // identifies this acquisition, unique in all processes
	Replaces    string        // token of the abandoned entry to take over; "" to take over none
	Attempt     int           // 1, more after a takeover; kept in the entry
	Fingerprint []byte        // of the request; kept in the entry, never compared by a store
	Owner       string        // for operators; kept in the entry
	Scope       string        // whose work it is; a bounded store may give one scope no more than its share. "": counted for none
	Lease       time.Duration // how long the entry is Held, at least 1 ms
	Linger      time.Duration // how long after its lease it is remembered as Abandoned; 0: not at all
	Fenced      bool          // ask for Entry.Fence, and for the refusal of late commands where the store can
	Longest     bool          // in a renewal: no call under Token asks for a longer lease, so that it can be set in place of compared
}

// Entry is what a store holds under a key.
type Entry struct {
	Key         string        // set by Inspector.List; the other methods may leave it empty
	State       State         // Free if there is nothing
	Token       string        // who claimed or settled it
	Attempt     int           // as claimed
	Fingerprint []byte        // as claimed
	Owner       string        // as claimed
	Receipt     []byte        // if Settled
	Fence       int64         // grows with every grant of this key; 0 if the claim was not Fenced. Get and List may show an earlier holder's
	Left        time.Duration // until the lease, the linger or the receipt ends; 0 if not known
}

// State is the state of an [Entry].
type State uint8

const (
	// Free means that there is no entry.
	Free State = iota
	// Held means that a lease runs.
	Held
	// Abandoned means that a lease ended without a word of its holder, and that
	// its linger runs.
	Abandoned
	// Settled means that the work ended and left a receipt.
	Settled
)

// String returns "free", "held", "abandoned" or "settled".
func (s State) String() string {
	switch s {
	case Free:
		return "free"
	case Held:
		return "held"
	case Abandoned:
		return "abandoned"
	case Settled:
		return "settled"
	}
	return "unknown"
}
