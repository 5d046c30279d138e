package lock

import (
	"context"
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
	set      *Set         // nil without one
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

// leaseEnd is the release or the settle of a lease.
type leaseEnd struct {
	settles    bool
	unanswered bool // a send of this end had no answer
	receipt    []byte
	keep       time.Duration
	began      time.Duration // from the grant to before the first send; 0 for a store in this process
}

// Context returns a context that ends when the lease does. If the lease is lost, it ends no
// later than the validity, with a cause that matches [ErrLost]. Otherwise it ends at the
// release. It is derived from the context given to Acquire. For work that runs unprotected
// ([WithFailOpen]), it ends only with the context given to Acquire, and [FromContext] does not
// find the lease in it.
func (e *Lease) Context() context.Context {
	if e == nil {
		return context.Background() //nolint:forbidigo // no lease, so it has no end
	}
	if e.local.Unprotected() {
		return e.parent
	}
	return (*leaseContext)(e)
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
	if e == nil {
		return ""
	}
	return e.label()
}

// label returns the key as the caller gave it.
func (e *Lease) label() string {
	if e.run != nil {
		return e.run.label
	}
	return e.entry
}

// name returns the guard's name, or the name part of the key.
func (e *Lease) name() string {
	if guard := requestinfo.Guard(e.owner); guard != "" {
		return guard
	}
	return keytext.Name(e.label())
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
		c.Replaces, c.Attempt, c.Fingerprint, c.Linger, c.Scope = r.replaces, r.attempt, r.fingerprint, cfg.keep, r.scope
		if r.forgottenOnCrash(cfg.inTx) {
			c.Linger = 0
		}
	}
	return c
}

// checkValidity ends the lease's context if the validity of the lease is over, and its work is not. The caller may
// hold locks of the work, and an observer may need the same locks. So another goroutine reports
// the loss.
func (e *Lease) checkValidity() {
	switch valid := e.validity.State(); {
	case valid.Lost != nil:
		e.cancel(valid.Lost) // the goroutine that noted the loss may not have cancelled it yet
	case valid.Renews && clock.Now() >= valid.Until && !e.outlived():
		report, _ := e.markLost(nil)
		go report()
	}
}

// outlived reports whether the end of the validity changes nothing: the work is over, and its record outlives the
// lease. The key stays taken in this process until the settle is answered.
func (e *Lease) outlived() bool {
	return e.run != nil && e.validity.State().Phase == validity.Ending
}

// lose ends the lease before its work is over. Its entry no longer has a holder.
func (e *Lease) lose(why *loss) error {
	report, lost := e.markLost(why)
	report()
	return lost
}

// markLost notes the loss and ends the lease's context. Without a reason, the validity is over. report follows: it frees
// the key, and reports the loss, unless an earlier call has noted one. That call may not have ended the context yet.
func (e *Lease) markLost(why *loss) (report func(), lost error) {
	l := e.locker
	if why == nil {
		if why = errExpired; e.validity.State().Capped {
			why = heldTooLong(l.cfg.maxHold)
		}
	}
	l.core.active.Join() // first: once the loss is noted the work may end, and Close return
	lost, first := e.validity.Lose(why)
	if lost != nil {
		e.cancel(lost)
	}
	return func() {
		defer l.core.active.Leave()
		if !first {
			return
		}
		if e.run == nil {
			// A renewal that was applied and not answered keeps the entry for up to one lease. The
			// entry must not refuse a caller for that long, so it is removed. An entry of Once
			// stays: it says that the outcome is unknown.
			e.addOrphan(EventReaped, 0)
		}
		e.local.Leave(nil)
		l.core.recent.note(EventLost, e.label())
		ctx, held := e.Context(), e.claim.grantedAt.Since()
		l.emit(ctx, e, EventLost, held, lost)
		l.logLost(ctx, e, held, lost)
	}, lost
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

type leaseKey struct{}

// leaseContext is the context of a lease's work. It is a type of its own so that Lease does not
// export its methods.
type leaseContext Lease

// released is the own context of all leases that ended before they needed one. They share it,
// so it has no values.
var released = func() *cancelctx.Context {
	own := cancelctx.New(context.Background()) //nolint:forbidigo // nothing can end it later
	own.Cancel(nil)
	return own
}()

// FromContext returns the lease of the innermost [Locker.Do] or middleware.Lock around the code
// that was given ctx. ok is false if no lease protects this code: there is no such call, or the
// store was down and the work runs unprotected ([WithFailOpen]). Under a [Set] it is the lease
// on the last of the sorted keys; see [SetFromContext].
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	lease, ok = ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}

// Done and Err check the clock, and do not rely on the timer alone: in a process that was
// paused for longer than its lease, the work may continue before any timer runs, and must find
// that its context has ended.
func (c *leaseContext) Done() <-chan struct{} {
	e := (*Lease)(c)
	e.checkValidity()
	return e.ownContext().Done()
}

func (c *leaseContext) Err() error {
	e := (*Lease)(c)
	e.checkValidity()
	if own := e.own.Load(); own != nil {
		return own.Err()
	}
	return e.parent.Err()
}

func (c *leaseContext) Deadline() (deadline time.Time, ok bool) { return c.parent.Deadline() }

func (c *leaseContext) Value(key any) any {
	switch key.(type) {
	case leaseKey:
		// The lease of Once protects no resource. Its fence, for example, would always be
		// newer than the fence of a lock inside or outside of it.
		if c.run == nil {
			return (*Lease)(c)
		}
	case runKey:
		if c.run != nil {
			return c.run
		}
	}
	own := c.own.Load()
	switch own {
	case nil:
	case released:
		// It has values for package context only, which asks Value for a cancelable parent
		// and its cause.
		if v := own.Value(key); v != nil {
			return v
		}
	default:
		return own.Value(key)
	}
	return c.parent.Value(key)
}

// String is for code that prints a context, as mocks do with their arguments. Without it, such
// code would read the fields of a lease in use.
func (c *leaseContext) String() string { return "lock.Lease.Context" }

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
