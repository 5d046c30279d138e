package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// Inspector is the part of a [Store] for operators.
type Inspector interface {
	// List yields every live entry, in no order. An entry that changes during
	// the listing may be seen in either form. A wrapper of a store that is no
	// Inspector yields errors.ErrUnsupported.
	List(ctx context.Context) iter.Seq2[Entry, error]

	// Forget removes the entry of any state, receipts and cool-downs too, if it
	// bears token. key is the Entry.Key of List.
	Forget(ctx context.Context, key, token string) (ok bool, err error)
}

// Pager is an [Inspector] that can list in steps. Package console then uses Page in
// place of List.
type Pager interface {
	// Page looks at about limit entries from cursor on, "" being the beginning, and
	// costs no more than that however many there are. It returns those whose key
	// match accepts (nil: all), in no order, and next, "" at the end, which nothing is
	// remembered for. What is there from the first page to the last is on one of them
	// at least, and may be on two; a page may be empty. Receipts are left out, and an
	// entry that cannot be read has its Key and nothing else. A wrapper of a store
	// that is no Pager returns errors.ErrUnsupported.
	Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error)
}

// Watcher is a [Store] that hears when a key may have become free or settled.
type Watcher interface {
	// Watch is called for a caller that has to wait, and stop when the wait is over.
	// It does not block, and wake has a value whenever there may be something to
	// claim; it may be nil. That is a hint and nothing else: values may be lost, made
	// up or taken together, for the Locker claims a little sooner for one, never more
	// often than every few milliseconds, and polls all the same. An entry that ended
	// just before Watch was called is reported by a value at the beginning.
	Watch(key string) (wake <-chan struct{}, stop func())
}

// Checker is a [Store] that finds out whether it is fit for use. A Locker asks it once in
// every minute of use.
type Checker interface {
	// Check returns what is wrong with the server, or its settings, and what to do.
	Check(ctx context.Context) error
}

// ServerLister is a [Store] that names the servers that it writes to, so that a quorum
// can tell whether two of its stores are one.
type ServerLister interface {
	Servers(ctx context.Context) (ids []string, err error)
}

// Transactor is a [Store] that can leave a receipt in the transaction of the work that
// it is of, so that either both are there afterwards or neither.
type Transactor interface {
	// Begin begins the transaction for the work under the claim of token, which is
	// granted. The context it returns is derived from ctx and carries the transaction to
	// the work. Begin may wait for a connection, within a bound of its own and until ctx
	// ends, which is when the caller has left or the lease is over. If there is an error,
	// nothing was begun, and the claim is given back.
	Begin(ctx context.Context, key, token string) (context.Context, Transaction, error)
}

// Transaction is what a [Transactor] has begun. It is ended by one call of Settle, or of
// Rollback. Its methods are called one after the other, when the work has returned. A
// transaction of which this process says nothing more has no effect.
type Transaction interface {
	// Settle turns the entry of the claim, whether its lease has ended or not, into a
	// receipt that is kept for keep, as [Store.Settle] does, and commits it with the work.
	// ok is false if the entry is no longer that claim's: then all was rolled back.
	//
	// An error that matches [ErrNotApplied] says that all was rolled back, for certain:
	// one that matches [ErrUnavailable] too, that the work may succeed if it is run again,
	// as after a serialization failure. After every other error the outcome is unknown.
	Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error)

	// Outcome finds out what became of a Settle whose outcome is unknown, and sees to it
	// that no more can become of it: what it has answered once stays true, whatever of the
	// Settle arrives later, and on every server that may be asked after this one. So the
	// question is a write, and the answer comes when that is confirmed. It cancels no
	// commit. The claim is the token's still, unless it was committed. After an error it is
	// asked again.
	Outcome(ctx context.Context) (committed bool, err error)

	// Rollback ends the transaction and has no effect after Settle. If there is an error,
	// it is the server that ends it, later.
	Rollback(ctx context.Context) error
}

// transactorOf returns s as a [Transactor], nil if it is none.
func transactorOf(s Store) Transactor {
	t, _ := s.(Transactor)
	return t
}

// Describer is a [Store] of which not all is as it is by default.
type Describer interface {
	// Describe is called by New, and for [Locker.Stats]. It does not block.
	Describe() Description
}

// Description is what a [Locker] has to know of a [Store], apart from its answers.
type Description struct {
	// MaxLag bounds how long after a call has returned its command can still take
	// effect, as one that a TCP peer has not read yet can. The clean-up after a call
	// without an answer goes on for that long. 0 stands for two minutes; where it
	// cannot happen, say 1 ns.
	MaxLag time.Duration

	// Drift is the part of a lease by which a holder stops relying on it earlier, and
	// 2 ms more, since no two clocks run equally fast. 0 stands for 0.01.
	Drift float64

	// Local says that the calls of the store wait for nothing, neither a network nor a
	// disk. They are made without a timer, and have no effect once they have returned.
	Local bool

	// NoReceipts, unless nil, says that the store is for locks and cool-downs alone,
	// and what to use for receipts. It matches [ErrNotApplied] and
	// errors.ErrUnsupported. The store returns it from a Settle with a receipt that is
	// not empty, and from every call with Linger or Replaces; [Locker.Once] returns it
	// without a call, and middleware.Idempotent and Dedupe panic with it.
	NoReceipts error

	// NoFences, unless nil, says why the store has no fences: New and With panic with
	// it if [WithFencing] is set. A store that finds out later answers a claim with
	// Fenced set with errors.ErrUnsupported.
	NoFences error

	// NoTransactions, unless nil, says why work does not run in a transaction of the
	// store: New and With panic with it if [WithTransaction] is set. [Describe] sets it
	// for a store that is no [Transactor]; a wrapper that always has a Begin returns that
	// of the store within.
	NoTransactions error

	// What the store keeps in this process, for gauges. 0 for a server's.
	Entries int
	Bytes   int64
}

var errNoTransactor = fmt.Errorf("lock: the store is no Transactor, so there is no transaction that receipts could be part of: "+
	"use one of the database that the work writes to: %w", errors.ErrUnsupported)

const (
	// defaultMaxLag is how long a late command is feared from a store that says
	// nothing about it: a closed socket's bytes can still be retransmitted.
	defaultMaxLag = 2 * time.Minute

	// defaultDrift is the one percent of redis.io's description of Redlock.
	defaultDrift = 0.01
)

// Describe returns the description of store, with all defaults set. A wrapper returns it
// with what it changes.
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
		d.MaxLag = defaultMaxLag
	}
	if d.Drift == 0 {
		d.Drift = defaultDrift
	}
	if d.NoTransactions == nil && transactorOf(store) == nil {
		d.NoTransactions = errNoTransactor
	}
	return d
}

// drift is how much earlier than the store a holder stops relying on a lease: for the
// difference of two clocks, and two milliseconds for what a store rounds, as in
// redis.io's description of Redlock.
func (d *Description) drift(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*d.Drift) + 2*time.Millisecond
}

// watchOf returns the Watch of s, or one that never has a hint.
func watchOf(s Store) func(key string) (wake <-chan struct{}, stop func()) {
	if s, ok := s.(Watcher); ok {
		return s.Watch
	}
	return func(string) (<-chan struct{}, func()) { return nil, func() {} }
}
