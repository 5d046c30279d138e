package lock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// Lease is a key that this process holds. Its methods are safe for concurrent
// use, and safe on nil.
//
// It contains all state that exists once per lease, so that a lease is one allocation,
// in four parts: the claim is written before the grant, and
// read by all after it; the local entry is locked with the shard of its key; the validity
// has a lock of its own; the end belongs to one goroutine after the other. Each says more.
type Lease struct {
	identity

	locker *Locker
	parent context.Context //nolint:containedctx // what the work's context and the renewals are derived from, long after Acquire returned
	remote *remote         // nil for a store in this process

	own atomic.Pointer[cancelctx.Context] // of the work, once it is asked for or has ended

	claim    leaseClaim
	local    local.Entry[*holder]
	validity validity.Validity[loss]
	end      end
}

// leaseClaim is what a lease has asked the store for, and was granted. The goroutine that
// acquires it writes it, before the grant; what runs after the grant only reads.
type leaseClaim struct {
	token     string
	call      *send.Call // the last claim; nil before it, and for a store that is prompt
	fence     int64
	grantedAt clock.Moment
	mostHold  time.Duration // from then on
	takeover  bool          // the last claim was to replace an abandoned entry
	orphaned  bool          // it was answered, and left an entry without a holder
	fenced    bool
}

// left returns how long the lease may be renewed at that moment, at most lease. The hold ends
// to the millisecond, not up to a lease later.
func (c *leaseClaim) left(lease time.Duration, at clock.Moment) time.Duration {
	return min(lease, c.mostHold-time.Duration(at-c.grantedAt))
}

// remoteLease is a lease of a store that has to be waited for, with what nearly every
// lease needs for that: so that its claim and its end cost no allocations, and little
// of the caller's stack, of which there are thousands when many wait.
type remoteLease struct {
	Lease
	remote
}

type remote struct {
	claim           claimRequest
	end             endRequest
	claiming, ended send.Call
}

// Context returns a context that ends when the lease does: with a cause that
// matches [ErrLost] no later than the end of its validity if it was lost, and
// otherwise at its release. It is derived from the context given to Acquire. If the
// work runs unprotected ([WithFailOpen]), it ends with that one only, and
// [FromContext] does not find the lease in it.
func (e *Lease) Context() context.Context {
	if e == nil {
		return context.Background() //nolint:forbidigo // nothing ends with a lease that there is not
	}
	if e.local.Bypassed() {
		return e.parent
	}
	return (*leaseContext)(e)
}

// Fence returns the fencing token of the lease: a number that grows with every
// grant of the key. Have the resource that is written to refuse numbers below
// the highest it has seen. ok is false without [WithFencing], and for work that runs
// unprotected.
func (e *Lease) Fence() (fence int64, ok bool) {
	if e == nil || !e.claim.fenced {
		return 0, false
	}
	return e.claim.fence, true
}

// owner is what an entry of e says of its owner.
func (e *Lease) owner() string {
	if e.observed == nil {
		return e.locker.core.owner
	}
	return e.observed.owner
}

// claimant is the process, and of a guard's run the request as well.
func (e *Lease) claimant() string {
	if e.record != nil && e.record.owner != "" {
		return e.record.owner
	}
	return e.owner()
}

type leaseKey struct{}

type runKey struct{}

// leaseContext is the context of a lease's work, from which FromContext finds
// it. It is the lease by another name, which does not give those methods to the
// lease.
//
// What ends, own, is made when it is first asked for. Most work is short and
// never asks, and a context that can end costs more than the rest of a lease:
// it has to register with its parent, and to take the registration back.
type leaseContext Lease

// released is the own context of all leases that ended with their work before
// it was asked for. It knows none of their values.
var released = func() *cancelctx.Context {
	own := cancelctx.New(context.Background()) //nolint:forbidigo // nothing can end it later
	own.Cancel(nil)
	return own
}()

// FromContext returns the lease under which the code that was given ctx runs:
// of the innermost [Locker.Do] or middleware.Lock. ok is false if nothing
// protects this code: there is none, or the store was down and the Locker was
// configured to go on without ([WithFailOpen]).
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	lease, ok = ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}

// Done and Err look at the clock, and do not rely on the timer alone: in a
// process that was paused for longer than its lease, the work may well come to
// run before any timer does, and must not find a living context then.
func (c *leaseContext) Done() <-chan struct{} {
	e := (*Lease)(c)
	e.checkValidity()
	return e.ending().Done()
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
		// The lease of a receipt protects no resource: a fence of it, say, would
		// always be newer than that of the lock inside or outside of it.
		if c.record == nil {
			return (*Lease)(c)
		}
	case runKey:
		if c.record != nil {
			return c.record.run
		}
	}
	own := c.own.Load()
	switch own {
	case nil:
	case released:
		// It answers package context alone, which asks by Value for what ends a context
		// and why.
		if v := own.Value(key); v != nil {
			return v
		}
	default:
		return own.Value(key)
	}
	return c.parent.Value(key)
}

// String keeps a context that is printed, as mocks do with their arguments, from
// showing the fields of a lease that is in use.
func (c *leaseContext) String() string { return "lock.Lease.Context" }

// ending returns the context that ends with e.
func (e *Lease) ending() *cancelctx.Context {
	if own := e.own.Load(); own != nil {
		return own
	}
	own := cancelctx.New(e.parent)
	if !e.own.CompareAndSwap(nil, own) {
		own.Cancel(nil) // another was faster, and this one's parent may forget it
	}
	return e.own.Load()
}

// cancel ends the context of the work: with the cause of its loss, or with nil
// because it is over. The first call decides, and if its parent has ended
// before, that has.
func (e *Lease) cancel(cause error) {
	if cause == nil && e.parent.Err() == nil && e.own.CompareAndSwap(nil, released) {
		return
	}
	e.ending().Cancel(cause)
}

// checkValidity ends the lease's context if its validity is over. It may be
// called under any lock of the work, which observers may want too; so the rest
// of the loss is done elsewhere.
func (e *Lease) checkValidity() {
	lost, expired := e.validity.Check()
	switch {
	case lost != nil:
		e.cancel(lost) // the goroutine that found it lost may not have cancelled it yet
	case expired != validity.NotExpired:
		if lost, first := e.markLost(lossBy(expired, e.locker.cfg.maxHold)); first {
			go e.dropLost(lost)
		}
	}
}

// lose ends the lease before its work is over. The entry, if
// there still is one, no longer has a holder.
func (e *Lease) lose(why *loss) error {
	lost, first := e.markLost(why)
	if first {
		e.dropLost(lost)
	}
	return lost.orNil()
}

// markLost ends the lease's context. first reports that it was this call that noted the
// loss, and that dropLost has to follow; if it was another, that may not have ended the
// context yet.
func (e *Lease) markLost(why *loss) (lost *loss, first bool) {
	if lost, first = e.validity.Lose(why); lost != nil {
		e.cancel(lost)
	}
	return lost, first
}

// dropLost gives up what this process has of a lost lease, and reports it.
func (e *Lease) dropLost(lost *loss) {
	c := e.locker.core
	if e.record == nil {
		// A renewal that was applied and not answered keeps the entry for up to a
		// lease more, and no caller may be refused because of it. (That of a run must
		// stay: it records that the outcome is not known.)
		e.addOrphan()
	}
	c.keys.Leave((*holder)(e))
	c.recent.note(event.Lost, e.label())
	ctx := e.Context()
	e.locker.emit(ctx, &e.identity, event.Lost, e.claim.grantedAt.Since(), lost)
	e.locker.logLost(ctx, &e.identity, e.claim.grantedAt.Since(), lost)
}

// lostError is why the lease was lost, nil if it was not.
func (e *Lease) lostError() error {
	lost, _ := e.validity.State()
	return lost.orNil()
}
