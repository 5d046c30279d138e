package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/endable"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Lease is a key that this process holds. Its methods are safe for concurrent
// use, and safe on nil.
//
// It contains all state that exists once per lease, from its place in the gate
// to the context of its work, so that a lease is one allocation.
type Lease struct {
	locker *Locker
	key    string          // in the store
	parent context.Context //nolint:containedctx // what the work's context and the renewals are derived from, long after Acquire returned
	run    *run            // of Once; nil for mutual exclusion

	// Written before the lease is granted.
	token     string
	claiming  *send.Call // the last claim; nil before it, and for a store that is prompt
	fence     int64
	story     *story // nil if there is neither an observer nor an origin
	grantedAt moment
	mostHold  time.Duration // from then on
	takeover  bool          // the last claim was to replace an abandoned entry
	orphaned  bool          // it was answered, and left an entry without a holder
	fenced    bool
	standing  standing

	away *away // nil for a store that is prompt

	own atomic.Pointer[endable.Context] // of the work, once it is asked for or has ended
	end end                             // how the work ended; written when phase is

	hash  uint64 // of its key, in the gate
	slot  *slot  // while it has the key in this process; locked with the gate's shard, like the next two
	due   moment // when it is to be renewed; written before the lease is granted, too
	place int32  // on the agenda, from 1; 0: it was never there

	mu         sync.Mutex
	capped     bool // validUntil is as late as WithMaxHold allows
	stopped    bool // it is no longer renewed, and no deadline is set
	phase      phase
	validUntil moment
	renewals   *renewals   // nil until the first
	opening    *time.Timer // opens the gate after a release that is not answered
	lost       error
}

type phase uint8

const (
	holding phase = iota
	ended         // Release or Settle was called
	over          // and was answered, or nothing more can be done
)

// label is what the caller calls the key.
func (e *Lease) label() string {
	if e.run != nil {
		return e.run.label
	}
	return e.key
}

// shard is the part of the gate that its key is in.
func (e *Lease) shard() *gateShard { return e.locker.core.gate.shard(e.hash) }

// fingerprint is empty for mutual exclusion.
func (e *Lease) fingerprint() []byte {
	if e.run != nil {
		return e.run.print
	}
	return nil
}

// attempt is more than 1 for a run that was begun before.
func (e *Lease) attempt() int {
	if e.run != nil {
		return e.run.attempt
	}
	return 1
}

// start makes a claim that was sent, and granted that much later, a running
// lease. Its validity counts from when it was sent.
func (e *Lease) start(sent moment, took, validity time.Duration) {
	cfg := &e.locker.cfg
	if cfg.detached {
		e.parent = context.WithoutCancel(e.parent)
	}
	e.grantedAt, e.mostHold = sent.add(took), cfg.maxHold-took
	e.validUntil, e.capped = sent.add(validity), cfg.maxHold == cfg.lease
	due := sent.add(cfg.lease / 3)
	e.due = due
	met := e.standing.grant() // no other goroutine reads the rest before, so that it needs no lock
	e.shard().expect(due)
	if met {
		e.locker.core.gate.share(e, grantOf(e))
	}
}

// Context returns a context that ends when the lease does: with a cause that
// matches [ErrLost] no later than the end of its validity if it was lost, and
// otherwise at its release. It is derived from the context given to Acquire.
func (e *Lease) Context() context.Context {
	if e == nil {
		return context.Background() //nolint:forbidigo // nothing ends with a lease that there is not
	}
	return (*leaseContext)(e)
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

// lose ends the lease before its work is over. The entry, if
// there still is one, no longer has a holder.
func (e *Lease) lose(why *loss) error {
	lost, first := e.markLost(why)
	if first {
		e.dropLost(lost)
	}
	return lost
}

// markLost ends the lease's context. first reports that it was this call that
// did, and that dropLost has to follow.
func (e *Lease) markLost(why *loss) (lost error, first bool) {
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

// dropLost gives up what this process has of a lost lease, and reports it.
func (e *Lease) dropLost(lost error) {
	c := e.locker.core
	if e.run == nil {
		// A renewal that was applied and not answered keeps the entry for up to a
		// lease more, and no caller may be refused because of it. (That of a run must
		// stay: it records that the outcome is not known.)
		c.cleaner.add(e.orphan())
	}
	c.gate.leave(e)
	c.recent.note(EventLost, e.label())
	ctx := e.Context()
	e.locker.emit(ctx, e, EventLost, e.grantedAt.since(), lost)
	e.locker.logLost(ctx, e, lost)
}

// stopTimers ends renewal and deadline for good. e.mu is held. The gate takes it
// off the agenda as it leaves, and a renewal that begins before does nothing.
func (e *Lease) stopTimers() {
	e.stopped = true
	if e.renewals != nil {
		e.renewals.deadline.Stop()
		e.renewals.stop()
	}
}
