package lock

import (
	"context"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/endable"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/local"
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
	away   *away           // nil for a store that is prompt

	own atomic.Pointer[endable.Context] // of the work, once it is asked for or has ended

	claim    leaseClaim
	local    local.Entry[*holder]
	validity validity.Validity[loss]
	end      end
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
	if e.bypassed() {
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
