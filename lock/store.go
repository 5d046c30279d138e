package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Store keeps the entries of a [Locker]. Most programs use a store of this module, such as package
// redisstore. To write your own, implement these five methods, about a hundred lines, and test
// them with latchtest.TestStore, which checks every rule below by name.
//
// Rules for all methods:
//
//   - One call is one attempt. The store never retries: the Locker decides about budgets, retries
//     and jitter.
//   - A call returns when its context ends, whether or not the command is applied later.
//     It is made on the goroutine of the Locker's caller, which waits for nothing else. A
//     client that ignores contexts has deadlines or timeouts of its own: set them.
//   - A panic in a call fails it, with an unknown outcome. A call must not end its goroutine
//     (runtime.Goexit): the Locker would wait for it.
//   - err means that the backend failed, never "no". An error that matches
//     [ErrNotApplied] says that the call certainly had no effect and will have
//     none later; every other error means "unknown". If it also matches [ErrDenied]
//     or [ErrFull], the call is not tried again.
//   - Every method may be called again for the same token, and later calls find the effects of
//     the earlier ones.
//   - The store's own clock, and the linger stored in the entry, decide when a lease and its
//     linger end. The caller's clock, and the linger of its claim, do not.
//   - Keys (1 to 1,024 bytes) and tokens (1 to 255 bytes) are opaque bytes:
//     "tok1" and "tok10" are two tokens, whatever the encoding.
//   - Settle and Release get the claim as the caller last claimed or renewed it, so that a store
//     can compute the stored value. Only c.Token decides: the other fields may be missing, or
//     differ from the entry.
//   - Slices are copied in and out. An absent entry is the zero [Entry].
//   - Methods are safe for concurrent use.
//
// A store may implement more: [Inspector], [Transactor], [Amender], [SetClaimer] and [Describer]. A
// wrapper passes on the interfaces that it wants to keep.
type Store interface {
	// Claim takes key for c.Token if it is free, and returns the entry
	// afterwards. The claim is granted if, and only if, the returned entry is [Held]
	// and has c.Token:
	//
	//   - absent or Free: taken, if c.Replaces is ""
	//   - Held by c.Token: granted again (the answer to an earlier send was lost)
	//   - Abandoned, and c.Replaces is its token: taken, in one atomic step
	//   - Held, c.Replaces is its token, and c.ReplacesHeld is set: taken in one atomic step, too,
	//     for c.Lease from now, even if the lease before it would have ended later
	//   - anything else: unchanged, whatever token it has
	//
	// A claim with c.Replaces never takes a free key: it can land long after its caller has
	// given up, and its entry would then have no holder.
	//
	// A [Settled] entry of c.Token is a receipt, not a grant. A store without fences
	// returns errors.ErrUnsupported for a claim with Fenced.
	Claim(ctx context.Context, key string, c Claim) (Entry, error)

	// Renew makes the lease of c.Token end no earlier than c.Lease from now, and
	// its linger no shorter than c.Linger. It never shortens either, and never
	// creates an entry. ok is false if the entry is not Held or Abandoned by
	// c.Token.
	Renew(ctx context.Context, key string, c Claim) (ok bool, err error)

	// Settle turns the entry of c.Token, Held or Abandoned, into a receipt that is kept for
	// keep. If the same token has settled it already, ok is true and the entry unchanged. ok is
	// false if the entry does not belong to the token. A store without room for the receipt returns
	// [ErrFull]. The Locker then settles an empty receipt, which has to fit into the room of the
	// claim.
	Settle(ctx context.Context, key string, c Claim, receipt []byte, keep time.Duration) (ok bool, err error)

	// Release removes the entry if it is Held or Abandoned by c.Token. It never
	// removes a receipt.
	Release(ctx context.Context, key string, c Claim) (ok bool, err error)

	// Get reads the entry where it is authoritative: not from a replica, not
	// from a client-side cache.
	Get(ctx context.Context, key string) (Entry, error)
}

// Claim is the claim of a caller on a key: [Store.Claim] makes it, [Store.Renew] prolongs it, and
// [Store.Settle] and [Store.Release] end it.
type Claim struct {
	Token        string        // identifies this claim over its second sends, unique in all processes
	Replaces     string        // token of the abandoned entry to take over; "" to take over none
	Attempt      int           // 1, more after a takeover; kept in the entry
	Fingerprint  []byte        // of the request; kept in the entry, never compared by a store
	Owner        string        // for operators; kept in the entry
	Scope        string        // whose work it is; a bounded store may give one scope no more than its share. "": counted for none
	Lease        time.Duration // how long the entry is Held, at least 1 ms
	Linger       time.Duration // how long after its lease it is remembered as Abandoned; 0: not at all
	ReplacesHeld bool          // Replaces also takes an entry that is Held: its holder hands it over
	Fenced       bool          // ask for Entry.Fence, and for the refusal of late commands where the store can
	Longest      bool          // in a renewal: the longest lease of Token, which the store may write without comparing
}

// Entry is the state of a key in a store.
type Entry struct {
	Key         string        // set by Inspector.List, and in a RefusedError; the other methods may leave it empty
	State       State         // Free if there is nothing
	Token       string        // of the caller that claimed or settled it
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
	// Abandoned means that a lease ended without a release or a settle, and that its linger
	// runs.
	Abandoned
	// Settled means that the work ended and left a receipt.
	Settled
)

// String returns "free", "held", "abandoned" or "settled".
func (s State) String() string {
	if names := [...]string{"free", "held", "abandoned", "settled"}; int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Inspector is the part of a [Store] for operators.
type Inspector interface {
	// List yields every live entry, in no order. An entry that changes during
	// the listing may be seen in either form. A wrapper of a store that is no
	// Inspector yields errors.ErrUnsupported.
	List(ctx context.Context) iter.Seq2[Entry, error]

	// Page looks at about limit entries, one at least, starting at cursor, "" for the first page.
	// Its cost does not depend on the number of entries in the store. It returns the entries whose
	// keys match accepts (nil: all), in no order, and the cursor of the next page, "" at the end.
	// The store keeps no state for a cursor. An entry that exists from the first page to the
	// last is on at least one of them, and may be on two. A page may be empty. Entries come
	// without their receipts, and an entry that cannot be read has only its Key. A
	// store that cannot list in steps returns errors.ErrUnsupported, and package console uses List.
	Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error)

	// Forget removes the entry of any state, receipts and cool-downs too, if it
	// bears token. key is the Entry.Key of List.
	Forget(ctx context.Context, key, token string) (ok bool, err error)
}

// Transactor is a [Store] that can leave a receipt in the transaction of its work, so that the
// effect and the receipt are committed together or neither is.
type Transactor interface {
	// Begin begins the transaction for the work under the claim of token, which is
	// granted. The context it returns is derived from ctx and carries the transaction to
	// the work. Begin may wait for a connection, within its own bound and until ctx ends. ctx ends
	// when the caller has left or the lease is over. After an error there is no transaction, and
	// the claim is released.
	Begin(ctx context.Context, key, token string) (context.Context, Transaction, error)
}

// Transaction is a transaction of a [Transactor]. One call of Settle or of Rollback ends it. Its
// methods are called one after the other, after the work has returned. Without either call, it
// has no effect.
type Transaction interface {
	// Settle turns the entry of the claim, whether its lease has ended or not, into a
	// receipt that is kept for keep, as [Store.Settle] does, and commits the receipt with the
	// work. ok is false if the entry no longer belongs to the claim: then all was rolled back.
	//
	// If the store has no room for the receipt, Settle leaves an empty one.
	//
	// An error that matches [ErrNotApplied] says that all was rolled back, for certain. If
	// it matches [ErrUnavailable] too, the work may succeed when it is run again, as after
	// a serialization failure. After every other error the outcome is unknown.
	Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error)

	// Outcome returns the outcome of a Settle that had no answer, and makes it final: a part
	// of the Settle that arrives later does not change it, neither on this server nor on a
	// server that is asked later. So Outcome writes, and returns when the write is confirmed.
	// It does not cancel a commit. If committed is false, the claim still belongs to the token.
	// After an error, the Locker calls Outcome again.
	Outcome(ctx context.Context) (committed bool, err error)

	// Rollback ends the transaction, and has no effect after Settle. After an error, the
	// server ends the transaction later.
	Rollback(ctx context.Context) error
}

// Amender is a [Store] that can replace a receipt, so that the answer to a request can come from
// another process, later.
type Amender interface {
	// Amend replaces the receipt from of a Settled entry of token with the receipt to, in one
	// atomic step. Everything else stays, including the end of its keep. If the entry has the
	// receipt to already, ok is true and the entry unchanged. ok is false if the entry does not
	// belong to token, is not Settled, or has another receipt. A store without room for the receipt
	// to returns [ErrFull], and keeps the receipt from.
	//
	// If ctx belongs to work in a transaction that this [Transactor] has begun, it amends in that
	// transaction: the work and the receipt are then committed together.
	Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error)
}

// SetClaimer is a [Store] that can claim the keys of a [Set] in one round trip.
//
// Keys are distinct, and in the order of their bytes. Each has its claim at the same index, with a
// token of its own. The claims differ in nothing else: they have Lease, Owner and Attempt 1, and no
// Replaces, Linger, Fingerprint or Fenced.
//
// A set that the store cannot claim at once, because its keys are on several servers, gets
// errors.ErrUnsupported, and then no key was claimed. The Locker claims one key after the other in
// its place. So a wrapper of a store that is no SetClaimer returns this error.
type SetClaimer interface {
	// ClaimSet takes all keys for their tokens, or none, in one atomic step. A key that its own
	// token already holds, because an earlier answer was lost, counts as taken. If all keys are
	// held by their tokens afterwards, ClaimSet returns the zero [Entry]. Otherwise it has
	// changed nothing, and returns an entry of another token, with the Key that it was given.
	ClaimSet(ctx context.Context, keys []string, claims []Claim) (inTheWay Entry, err error)
}

// Describer is a [Store] that changes a default.
type Describer interface {
	// Describe is called by New, and for [Locker.Stats]. It does not block.
	Describe() Description
}

// Description has the properties of a [Store] that a [Locker] needs to know.
type Description struct {
	// MaxLag is the longest time after the return of a call in which its command can still take
	// effect, for example because a TCP peer has not read it yet. The clean-up after a call
	// without an answer goes on for that long. 0 stands for two minutes. Set 1 ns if a command
	// never takes effect after its call.
	MaxLag time.Duration

	// Drift is a fraction of the lease. A holder gives up this part of its lease, and 2 ms
	// more, because no two clocks run equally fast. 0 stands for 0.01.
	Drift float64

	// Local says that the calls of the store wait neither for a network nor for a disk. The
	// Locker makes them without a timer. They have no effect after they have returned.
	Local bool

	// NoReceipts, unless nil, says that the store is only for locks and cool-downs, and names
	// a store for receipts. It matches [ErrNotApplied] and errors.ErrUnsupported. The store
	// returns it from a Settle with a receipt that is not empty, and from every call with
	// Linger or Replaces. [Locker.Once] returns it without a call to the store, and
	// middleware.Idempotent and Dedupe panic with it.
	NoReceipts error

	// NoFences, unless nil, says why the store has no fences: New and With panic with
	// it if [WithFencing] is set. If a store finds out later, its Claim
	// returns errors.ErrUnsupported for a claim with Fenced.
	NoFences error

	// NoTransactions, unless nil, says why work does not run in a transaction of the
	// store: New and With panic with it if [WithTransaction] is set. [Describe] sets it
	// for a store that is no [Transactor]. A wrapper that always has a Begin returns the
	// value of its store.
	NoTransactions error

	// NoAmends, unless nil, says why the store cannot replace a receipt. It matches
	// errors.ErrUnsupported. [Describe] sets it for a store that is no [Amender]. A wrapper that
	// always has an Amend returns the value of its store.
	NoAmends error

	// Check, unless nil, returns an error if the server, or a setting of it, is unfit. The error says
	// how to fix it. A Locker calls Check once in every minute of use. Check returns when its ctx ends, after 5 s.
	Check func(ctx context.Context) error

	// Watch, unless nil, gives hints that a key may have become free or settled. It is called for a
	// caller that has to wait, and stop when the wait is over. It does not block. wake gets a value
	// whenever the key may be free, and may be nil. A value is only a hint: it may be lost, be false,
	// or stand for several events. After a hint the Locker claims a little sooner, at most every few
	// milliseconds, and it polls all the same. If the entry ended just before Watch was called, wake
	// has a value at once.
	Watch func(key string) (wake <-chan struct{}, stop func())

	// Servers, unless nil, names the servers to which the store writes, so that a quorum can detect
	// the same server behind two stores.
	Servers func(ctx context.Context) (ids []string, err error)

	// Entries and Bytes are the size of a store in this process, for gauges; 0 for a server.
	Entries int
	Bytes   int64
}

var errNoTransactor = fmt.Errorf("lock: the store is no Transactor, so there is no transaction that receipts could be part of: "+
	"use one of the database that the work writes to: %w", errors.ErrUnsupported)

var errNoAmender = fmt.Errorf("lock: the store is no Amender, so a receipt stays as it is: %w", errors.ErrUnsupported)

// Describe returns the description of store, with all defaults set. A wrapper returns the
// description of its store, with its own changes: one that renames keys renames them for Watch, too.
func Describe(store Store) Description {
	var d Description
	if s, ok := store.(Describer); ok {
		d = s.Describe()
	}
	switch {
	case d.MaxLag > 0:
	case d.Local:
		d.MaxLag = 1
	default:
		d.MaxLag = 2 * time.Minute // the bytes of a closed socket can still be retransmitted
	}
	if d.Drift == 0 {
		d.Drift = 0.01 // as in redis.io's description of Redlock
	}
	if _, is := store.(Transactor); !is && d.NoTransactions == nil {
		d.NoTransactions = errNoTransactor
	}
	if _, is := store.(Amender); !is && d.NoAmends == nil {
		d.NoAmends = errNoAmender
	}
	return d
}
