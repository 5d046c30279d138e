// Package validity decides for how long the holder of a lease may rely on it, and which event comes
// next: a renewal, a loss, or the opening of the key for other callers.
package validity

import (
	"context"
	"sync"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Validity is the validity of one lease. Loss is the reason for which a lease can be lost.
// The zero Validity is not started.
//
// A method with a parameter alarm calls it with the next moment at which something is due. It
// does so under its lock, so that no alarm is set after the end. The alarm may lock the shard of
// the key, and calls neither a store nor an observer.
type Validity[Loss any] struct {
	mu       sync.Mutex
	phase    Phase
	opens    Opens
	capped   bool // until is as late as the maximum hold allows
	renewing bool
	stopped  bool // there are no further renewals, and the end is no loss

	until    clock.Moment
	renewAt  clock.Moment // Never if there is no further renewal
	renewals *renewals    // nil until the first
	lost     *Loss
}

// Phase is the progress of the end of a lease.
type Phase uint8

const (
	// Holding is the phase before Release or Settle was called.
	Holding Phase = iota
	// Ended is the phase after Release or Settle was called.
	Ended
	// Over is the phase after that call was answered, or was given up.
	Over
)

// Opens is the fate of the key at the end of a validity that is not renewed.
type Opens uint8

const (
	// OpensNothing leaves the key as it is.
	OpensNothing Opens = iota
	// OpensKey lets other callers of this process claim it.
	OpensKey
	// OpensOrphaned is OpensKey, and removes the entry that may be left.
	OpensOrphaned
	// OpensBypassed is OpensOrphaned for a lease that was not granted: its work runs
	// unprotected.
	OpensBypassed
)

// renewals is the context of all renewals of a lease.
type renewals struct {
	ctx  context.Context //nolint:containedctx // ends with the lease
	stop context.CancelFunc
}

// Start begins a validity. No other goroutine knows of it yet, so Start takes no lock.
// capped says that it cannot be renewed.
func (v *Validity[Loss]) Start(until, renewAt clock.Moment, capped bool) {
	if capped {
		renewAt = clock.Never
	}
	v.until, v.renewAt, v.capped = until, renewAt, capped
}

// Due is a renewal, a loss or an opening that is due. At most one field is set.
type Due struct {
	Renewal context.Context //nolint:containedctx // for the renewal that is due
	Expired Expiry
	Opens   Opens
}

// Expiry is the reason for the end of a validity.
type Expiry uint8

const (
	// NotExpired says that the validity has not ended.
	NotExpired Expiry = iota
	// NotRenewed says that no renewal was answered in time.
	NotRenewed
	// MaxHold says that the maximum hold is over.
	MaxHold
)

// Ring returns the action that is due at the moment at, and notes the action as done. It decides by
// the clock, so one alarm too many does no harm. parent is the context of the work.
func (v *Validity[Loss]) Ring(parent context.Context, at clock.Moment, alarm func(clock.Moment)) (d Due) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.stopped && at >= v.until:
		d.Opens, v.opens = v.opens, OpensNothing
	case v.stopped:
	case at >= v.until:
		d.Expired = v.expiryLocked()
		return d
	case at >= v.renewAt && !v.renewing:
		d.Renewal = v.beginRenewalLocked(parent)
	}
	v.setAlarmLocked(alarm)
	return d
}

// setAlarmLocked calls alarm if an action is due later.
func (v *Validity[Loss]) setAlarmLocked(alarm func(clock.Moment)) {
	if next := v.nextLocked(); next != clock.Never {
		alarm(next)
	}
}

// nextLocked returns the moment at which the next action is due, Never if none is.
func (v *Validity[Loss]) nextLocked() clock.Moment {
	switch {
	case v.stopped && v.opens == OpensNothing:
		return clock.Never
	case v.stopped, v.renewing:
		return v.until
	default:
		return min(v.renewAt, v.until)
	}
}

// beginRenewalLocked returns the context of the renewals. It does not end with parent: the
// caller's client may have gone while the work goes on.
func (v *Validity[Loss]) beginRenewalLocked(parent context.Context) context.Context {
	v.renewing = true
	if v.renewals == nil {
		r := new(renewals)
		r.ctx, r.stop = context.WithCancel(context.WithoutCancel(parent))
		v.renewals = r
	}
	return v.renewals.ctx
}

// EndRenewal ends a renewal that [Validity.Ring] has begun. The next renewal is due at the moment
// next.
func (v *Validity[Loss]) EndRenewal(next clock.Moment, alarm func(clock.Moment)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.renewing, v.renewAt = false, next
	if v.capped {
		v.renewAt = clock.Never
	}
	v.setAlarmLocked(alarm)
}

// Prolong moves the end of the validity to until, if that is later, and the next renewal to
// renewAt. A renewal that is under way sets renewAt itself.
func (v *Validity[Loss]) Prolong(until, renewAt clock.Moment, capped bool) (lost *Loss, phase Phase) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if until > v.until {
		v.until, v.capped = until, capped
		if v.renewAt = renewAt; capped {
			v.renewAt = clock.Never
		}
	}
	return v.lost, v.phase
}

// stopLocked ends renewals and alarms permanently. The local table drops the alarm when the lease
// leaves the table, and an alarm that rings before then does nothing.
func (v *Validity[Loss]) stopLocked() {
	v.stopped = true
	if v.renewals != nil {
		v.renewals.stop()
	}
}

// OpenLater ends the renewals, and opens the key at the end of the validity.
func (v *Validity[Loss]) OpenLater(how Opens, alarm func(clock.Moment)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.openLaterLocked(how, alarm)
}

func (v *Validity[Loss]) openLaterLocked(how Opens, alarm func(clock.Moment)) {
	v.stopLocked()
	v.opens = how
	v.setAlarmLocked(alarm)
}

// Bypass starts the validity of a lease that was not granted, and whose work runs
// unprotected.
func (v *Validity[Loss]) Bypass(until clock.Moment, alarm func(clock.Moment)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = until
	v.openLaterLocked(OpensBypassed, alarm)
}

// Gone notes that a renewal did not find the entry. holding says that the lease is lost with
// it. Otherwise a settle without an answer was applied, or another caller has the key. The answer
// to the settle will show which of the two, and there is nothing left to renew.
func (v *Validity[Loss]) Gone(alarm func(clock.Moment)) (holding bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase == Holding {
		return true
	}
	if !v.stopped {
		v.openLaterLocked(OpensKey, alarm)
	}
	return false
}

// Lose notes that the lease is lost. first reports that no earlier call did, and that the
// lease was not over.
func (v *Validity[Loss]) Lose(why *Loss) (lost *Loss, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil || v.phase == Over {
		return v.lost, false
	}
	v.lost = why
	v.stopLocked()
	return why, true
}

// End notes that the work is over. first reports that no earlier call did: the caller ends
// the lease. A lease that is settled is renewed until the settle is answered.
func (v *Validity[Loss]) End(settles bool) (lost *Loss, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase != Holding {
		return nil, false
	}
	v.phase = Ended
	if !settles {
		v.stopLocked() // a lease that is about to be released needs no renewal
	}
	return v.lost, true
}

// Close notes that the end was answered, or given up. It returns the fate that the key would have
// had at the end of the validity.
func (v *Validity[Loss]) Close() (opens Opens) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.phase = Over
	v.stopLocked()
	opens, v.opens = v.opens, OpensNothing
	return opens
}

// Halt ends renewals and alarms: the lease is released, or lapses since its Locker was
// closed.
func (v *Validity[Loss]) Halt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stopLocked()
}

// Check returns the loss of the lease, and whether its validity has ended by the clock.
func (v *Validity[Loss]) Check() (lost *Loss, expired Expiry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.stopped && clock.Now() >= v.until {
		expired = v.expiryLocked()
	}
	return v.lost, expired
}

func (v *Validity[Loss]) expiryLocked() Expiry {
	if v.capped {
		return MaxHold
	}
	return NotRenewed
}

// State returns the loss of the lease, nil if it was not lost, and its phase.
func (v *Validity[Loss]) State() (lost *Loss, phase Phase) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost, v.phase
}

// Renews reports whether the lease is renewed until its end, and until when it is valid.
func (v *Validity[Loss]) Renews() (renews bool, until clock.Moment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.stopped, v.until
}

// RenewAt returns the moment at which the next renewal is due, in the past while one is under way. It is
// [clock.Never] if there is no further renewal.
func (v *Validity[Loss]) RenewAt() clock.Moment {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped {
		return clock.Never
	}
	return v.renewAt
}

// RenewsAgain reports whether a renewal is still to come, and until when the lease is valid.
func (v *Validity[Loss]) RenewsAgain() (again bool, until clock.Moment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.stopped && !v.capped, v.until
}
