package lock

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// Lease is a key that this process holds. Its methods are safe for concurrent
// use, and safe on nil.
type Lease struct {
	locker   *Locker
	entry    string       // the name of the key in the store: the key itself, or a hash of it for Once
	owner    string       // of the entry: the process and its origin, for a guard also the request
	run      *Run         // of Once; nil for mutual exclusion
	outer    *Run         // that bounds this lease; nil without one, and over a store in this process
	set      []string     // the keys that it belongs to; nil without others
	observed *observation // nil without an observer

	parent context.Context //nolint:containedctx // of the work's context and of renewals, long after Acquire returned
	// own ends with the lease, and is made when it is first needed. Most work never needs it, and it costs more than
	// the rest of a lease: it has to register with its parent, and to deregister.
	own atomic.Pointer[cancelctx.Context]

	claim    leaseClaim    // written before the grant, and only read after it
	local    local.Holding // locked with the shard of the key
	validity validity.Validity
	end      leaseEnd // belongs to the goroutine that ended the work, and later to the one of a duty
}

// The states of a lease. Callers for its key see the first three in its Holding, and its work sees the others in
// its validity. A loss is no state: it is noted when a lease is held or ending, at the end of its validity or when another
// caller has the entry. It ends the context of the work, and frees the key here.
//
//	state        until
//	claiming     granted: held; bypass, without an answer: unprotected; else discard: over
//	held         endWith, by Release, Settle or HandOver: ending
//	unprotected  endWith: over. After the length of a lease, Ring frees its key here, and its work goes on
//	ending       endAnswered, or what is left is a duty: over. A settle without an answer is renewed, and is not lost in Once
//	over         no more

// leaseClaim is the claim of a lease, and the store's grant. The goroutine that acquires the
// lease writes it before the grant. After the grant it is only read.
type leaseClaim struct {
	token      string
	flight     *send.Flight // of the last claim
	until      clock.Moment // of the validity, if the claim is granted
	renewAt    clock.Moment
	lastEnd    clock.Moment // by WithMaxHold; a renewal is shorter, so that the lease ends then
	fence      int64
	grantedAt  clock.Moment
	unanswered bool // a send of the last claim had no answer
	takeover   bool // the last claim replaces an abandoned entry
	orphaned   bool // the last claim was answered, and its entry has no holder
	capped     bool // it asks for the whole WithMaxHold, so the lease is not renewed
}

// span returns the lease for which a claim or a renewal of e asks that is sent after the moment at: lease, or
// a shorter one if e is part of a run of Once. It returns the end of its validity and the moment of the next
// renewal, too. The validity has a margin for the difference of two clocks, and 2 ms for rounding, as in
// redis.io's description of Redlock. The renewal is due after a third of the lease.
//
// In the store, e must end before the entry of the run. If this process is killed, the successor of the run would
// otherwise be refused by a lock of the run. The validity of the run ends no later than its entry, and a renewal
// of the run without an answer does not prolong it. The eighth that is left covers the time until the call reaches
// the store, and the difference of two clocks. Each renewal of e looks again, and there is one after each
// renewal of the run: so e survives all but the longest outages that the run survives. A settled run has no
// successor. A lost run may have one, which e must keep out while its work goes on.
func (e *Lease) span(lease time.Duration, at clock.Moment) (asked time.Duration, until, renewAt clock.Moment) {
	c, renewRun := e.locker.core, clock.Never
	if e.outer != nil {
		run := e.outer.lease.validity.State()
		if renewRun = run.RenewAt; run.Renews {
			left := run.Until.Until()
			lease = min(lease, max(left-left/8, time.Millisecond))
		}
	}
	renewAt = at.Add(lease / 3)
	if renewRun != clock.Never {
		renewAt = min(renewAt, max(renewRun, clock.Now()).Add(e.locker.cfg.budget)) // by then, that renewal is answered
	}
	margin := time.Duration(float64(lease)*c.about.Drift) + 2*time.Millisecond
	return lease, at.Add(lease - margin), renewAt
}

type leaseEnd struct {
	settles    bool
	answer     bool // the receipt is the answer of work that was not notified of a loss
	unanswered bool // a send of this end had no answer
	receipt    []byte
	keep       time.Duration
	began      time.Duration // from the grant to before the first send; 0 for a store in this process
}

// Fence returns the fencing token of the lease: a number that grows with every
// grant of the key. Send it with each write, and let the resource refuse a number below the highest
// that it has seen. ok is false without [WithFencing], and for work that runs unprotected.
func (e *Lease) Fence() (fence int64, ok bool) {
	if e == nil || !e.locker.cfg.fenced || !e.local.Granted() {
		return 0, false
	}
	return e.claim.fence, true
}

// Key returns the key as it was given to the Locker; "" for nil.
func (e *Lease) Key() string {
	switch {
	case e == nil:
		return ""
	case e.run != nil:
		return e.run.label
	}
	return e.entry
}

// name returns the guard's name, or the name part of the key.
func (e *Lease) name() string {
	if guard := requestinfo.Guard(e.owner); guard != "" {
		return guard
	}
	return keytext.Name(e.Key())
}

// fingerprint is empty for mutual exclusion.
func (e *Lease) fingerprint() []byte {
	if e.run != nil {
		return e.run.fingerprint
	}
	return nil
}

// attempt is above 1 for a run that took over from another.
func (e *Lease) attempt() int {
	if e.run != nil {
		return e.run.attempt
	}
	return 1
}

// claimOf returns the claim of e for a lease of this length.
func (e *Lease) claimOf(lease time.Duration) Claim {
	cfg := &e.locker.cfg
	c := Claim{
		Token:   e.claim.token,
		Attempt: 1,
		Owner:   e.owner,
		Lease:   lease,
		Fenced:  cfg.fenced,
		Longest: lease == cfg.lease && !cfg.rerun, // with rerun, Commit renews for as long as a record is kept
	}
	if r := e.run; r != nil {
		c.Replaces, c.ReplacesHeld, c.Attempt = r.replaces, r.replacesHeld, r.attempt
		c.Fingerprint, c.Linger, c.Scope = r.fingerprint, cfg.keep, r.scope
		if r.forgottenOnCrash(cfg.inTx) {
			c.Linger = 0
		}
	}
	return c
}

// localLease is a lease as a local.Lease. It is a type of its own so that Lease does not export
// these methods.
type localLease Lease

func leaseOf(l local.Lease) *Lease {
	return (*Lease)(l.(*localLease)) //nolint:errcheck,forcetypeassert // the table has no other leases
}

func (h *localLease) Owner() string { return requestinfo.Process(h.owner) }

func (h *localLease) SameRequest(other local.Lease) bool {
	return sameRequest((*Lease)(h).fingerprint(), leaseOf(other).fingerprint())
}

// released is the own context of all leases that ended before they needed one. They share it,
// so it has no values.
var released = func() *cancelctx.Context {
	own := cancelctx.New(context.Background()) //nolint:forbidigo // nothing can end it later
	own.Cancel(nil)
	return own
}()

// ownContext returns the context that ends with the lease.
func (e *Lease) ownContext() *cancelctx.Context {
	if own := e.own.Load(); own != nil {
		return own
	}
	own := cancelctx.New(e.parent)
	if !e.own.CompareAndSwap(nil, own) {
		own.Cancel(nil) // another goroutine was faster; the parent forgets this one
	}
	return e.own.Load()
}

// cancel ends the context of the work. The cause is the loss of the lease, or nil because the work
// is over. The first call decides the cause, unless the parent context ended before.
func (e *Lease) cancel(cause error) {
	if cause == nil && e.parent.Err() == nil && e.own.CompareAndSwap(nil, released) {
		return
	}
	e.ownContext().Cancel(cause)
}

// Run is one execution of the work of a submission, begun by [Locker.Begin]. Its methods are safe for
// concurrent use, and belong to the guard, not to the work.
type Run struct {
	lease   Lease
	effects effects
	tx      Transaction     // around the work; nil if it runs in none
	txWork  context.Context //nolint:containedctx // of work in tx

	label       string // the key as the caller gave it
	scope       string // whose work it is
	fingerprint []byte // in room if it fits, as the fingerprints of package middleware do
	room        [48]byte

	// Written before the lease is granted.
	replaces     string // token of the abandoned entry to take over
	attempt      int
	replacesHeld bool // its lease may still run: it is a lost takeover of this process

	mu    sync.Mutex // held during Settle: a second call waits for the outcome of the first
	phase runPhase
	err   error // of Settle
}

type runPhase uint8

const (
	running runPhase = iota
	runSettled
	runFailed
)

type runKey struct{}

// forgottenOnCrash reports whether a crash of the holder leaves no record: a transaction
// without a receipt did not happen. There is a record once [Commit] was called, while an
// effect elsewhere is possible, and in a takeover.
func (r *Run) forgottenOnCrash(inTx bool) bool {
	return inTx && r.attempt == 1 && !r.effects.now().possible()
}

// refusal returns the reason for which an entry with this state and fingerprint refuses a claim
// of r, or of a lock if r is nil. It returns nil if the claim may take the entry over.
func (r *Run) refusal(state State, fingerprint []byte, rerun bool) error {
	switch {
	case r != nil && !sameRequest(r.fingerprint, fingerprint):
		return ErrMismatch
	case state == Settled && r != nil:
		return errReplay
	case state == Settled:
		return ErrSettled
	case state == Abandoned && r != nil && rerun:
		return nil
	case state == Abandoned:
		return ErrAbandoned
	default:
		return ErrHeld
	}
}

// sameRequest compares fingerprints. An empty fingerprint equals every other.
func sameRequest(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b)
}

// effects records whether a run may have had an effect. If it may, a failure does not free its key.
type effects struct {
	mu sync.Mutex
	effectState
}

type effectState struct {
	committed       bool
	begun           bool     // the answer has begun to leave
	freed           bool     // the run ended without a receipt, so the key is free for the next
	possibleEffects int      // calls that may have had an effect elsewhere
	failedReceipt   []byte   // of a run that failed after such calls, or after its answer had begun to leave
	steps           []string // that run or are done; "" for one that has failed
}

// possible reports whether a failure of the run no longer implies that it had no effect.
func (s effectState) possible() bool { return s.committed || s.possibleEffects > 0 || s.begun }

// receipt returns the receipt that a failed run leaves if its key is not freed: the receipt of an
// answer that has begun, or of a possible effect elsewhere, or nil.
func (s effectState) receipt() (receipt []byte, elsewhere bool) {
	if s.begun {
		return s.failedReceipt, false
	}
	if s.possibleEffects > 0 {
		return s.failedReceipt, true
	}
	return nil, false
}

func (f *effects) now() effectState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.effectState
}

// free ends the run without a receipt and returns true, unless the run may have had an effect
// ([Commit], [Run.NotePossibleEffect], [Run.Hold]). After that, all three fail.
func (f *effects) free() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freed = !f.possible()
	return f.freed
}

// note calls mark unless the run was freed.
func (f *effects) note(mark func()) (noted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freed {
		return false
	}
	mark()
	return true
}
