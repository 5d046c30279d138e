package lock

import (
	"context"
	"sync"
	"time"
)

// Lease is a key that this process holds. Its methods are safe for concurrent
// use, and safe on nil.
type Lease struct {
	locker      *Locker
	key         string          // in the store
	label       string          // what the caller calls it
	parent      context.Context //nolint:containedctx // what renewals are derived from, long after Acquire returned
	fingerprint []byte
	run         *run // of Once; nil for mutual exclusion

	// Written before the lease is granted.
	token      string
	replaces   string // token of the abandoned entry to take over
	takeover   bool   // the last claim was to replace one
	attempt    int
	receipt    []byte // found in place of a grant
	flight     *flight
	unanswered bool // a send of the claim got no answer: it may land after the release
	fence      int64
	fenced     bool
	story      *story // nil if nobody is told it
	grantedAt  time.Time
	maxEnd     time.Time
	ctx        context.Context //nolint:containedctx // a lease is a context that ends with it: that is what Context returns

	mu         sync.Mutex
	cancel     context.CancelCauseFunc // nil until granted
	validUntil time.Time
	capped     bool               // validUntil is as late as WithMaxHold allows
	renewal    *time.Timer        // fires at a third of the lease; no more than this one timer is paid for short work
	deadline   *time.Timer        // set with the first renewal: ends the lease whatever the renewal does
	renewCtx   context.Context    //nolint:containedctx // shared by all renewals of the lease
	stopRenew  context.CancelFunc // set with the first renewal
	opening    *time.Timer        // opens the gate after a release that is not answered
	stopped    bool               // no timer is set any more
	phase      phase
	lost       error
}

type phase uint8

const (
	holding phase = iota
	ended         // Release or Settle was called
	over          // and was answered, or nothing more can be done
)

// start makes a granted claim a running lease.
func (e *Lease) start(ctx context.Context, now, sent, validUntil time.Time) {
	if e.locker.cfg.detached {
		ctx = context.WithoutCancel(ctx)
	}
	cancelable, cancel := context.WithCancelCause(ctx)
	e.ctx = &leaseContext{cancelable, e}
	e.grantedAt, e.maxEnd = now, sent.Add(e.locker.cfg.maxHold)
	if e.run != nil {
		e.locker.core.gate.grant(e)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel = cancel
	e.validUntil, e.capped = validUntil, e.locker.cfg.maxHold == e.locker.cfg.lease
	e.renewal = time.AfterFunc(time.Until(sent.Add(e.locker.cfg.lease/3)), e.renew)
}

// Context returns a context that ends when the lease does: with a cause that
// matches [ErrLost] no later than the end of its validity if it was lost, and
// otherwise at its release. It is derived from the context given to Acquire.
func (e *Lease) Context() context.Context {
	if e == nil {
		return context.Background() //nolint:forbidigo // nothing ends with a lease that there is not
	}
	return e.ctx
}

// Fence returns the fencing token of the lease: a number that grows with every
// grant of the key. Have the resource that is written to refuse numbers below
// the highest it has seen. ok is false without [WithFencing].
func (e *Lease) Fence() (fence int64, ok bool) {
	if e == nil || !e.fenced {
		return 0, false
	}
	return e.fence, true
}

// lose ends the belief in the lease before its work is over. The entry, if
// there still is one, belongs to nobody any more.
func (e *Lease) lose(why *loss) error {
	lost, first := e.disbelieve(why)
	if first {
		e.forsake(lost)
	}
	return lost
}

// disbelieve ends the lease's context. first says that it was this call that
// did, and that forsake has to follow.
func (e *Lease) disbelieve(why *loss) (lost error, first bool) {
	e.mu.Lock()
	if e.lost != nil || e.phase == over {
		defer e.mu.Unlock()
		return e.lost, false
	}
	e.lost = why
	e.stopTimers()
	e.mu.Unlock()
	e.cancel(why)
	return why, true
}

// forsake gives up what this process has of a lost lease, and tells of it.
func (e *Lease) forsake(lost error) {
	c := e.locker.core
	if e.run == nil {
		// A renewal that was applied and not answered keeps the entry for up to a
		// lease more, and nobody may be refused by it. (That of a run must stay:
		// it is what remembers that the outcome is not known.)
		c.reaper.add(e.sweep())
	}
	c.gate.leave(e)
	c.recent.note(EventLost, e.label)
	e.locker.emit(e.ctx, e, EventLost, time.Since(e.grantedAt), lost)
	e.locker.logLost(e.ctx, e, lost)
}

// stopTimers ends renewal and deadline for good. e.mu is held.
func (e *Lease) stopTimers() {
	e.stopped = true
	e.renewal.Stop()
	if e.deadline != nil {
		e.deadline.Stop()
		e.stopRenew()
	}
}
