// Package validity decides for how long the holder of a lease may rely on it, and which event comes
// next: a renewal, a loss, or the opening of the key for other callers.
package validity

import (
	"context"
	"sync"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Validity is the validity of one lease, whose states are listed beside lock.Lease. It is Holding from Start,
// Ending from End, and Over from Close, and Lose may come before each of the last two.
//
// A record outlives its lease: at the end of its validity, an Ending one is halted and not lost.
// The work of a lease that was not granted is Holding from Bypass on, and opens its key later.
// The zero Validity is not started.
type Validity struct {
	mu    sync.Mutex
	alarm Alarm
	state State // RenewAt counts only if the lease renews, and is not capped

	renewals context.Context //nolint:containedctx // of all renewals; nil until the first
	end      context.CancelFunc
}

// Alarm rings at the next moment at which something is due. It is set under the lock of the validity, so
// that none is set after the end. It may lock the shard of the key, and calls neither a store nor an
// observer.
type Alarm interface{ SetAlarm(due clock.Moment) }

// Phase is the progress of the end of a lease.
type Phase uint8

// The phases of a lease.
const (
	Holding Phase = iota // until Release or Settle is called
	Ending               // until that call is answered, or given up
	Over
)

// State is the state of a [Validity] at one moment.
type State struct {
	Phase  Phase
	Renews bool // it is renewed until its end, or until the maximum hold, and its end is a loss
	Capped bool // Until is as late as the maximum hold allows

	renewing bool
	opens    bool // the work is unprotected, and the key opens at the end

	Until   clock.Moment // it is valid until then
	RenewAt clock.Moment // of the next renewal, in the past while one is under way; Never if there is none
	Lost    error        // nil if the lease was not lost
}

// Start begins a validity, which no other goroutine knows yet. capped says that it cannot be renewed.
func (v *Validity) Start(alarm Alarm, until, renewAt clock.Moment, capped bool) {
	v.alarm, v.state = alarm, State{Renews: true, Capped: capped, Until: until, RenewAt: renewAt}
}

// Bypass starts the validity of a lease that was not granted, and whose work runs unprotected: the key
// opens at until.
func (v *Validity) Bypass(alarm Alarm, until clock.Moment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alarm, v.state = alarm, State{Until: until, opens: true}
	v.setAlarm()
}

// Due is a renewal, a loss or an opening that is due. At most one field is set.
type Due struct {
	Renewal context.Context //nolint:containedctx // for the renewal that is due
	Expired bool
	Opens   bool
}

// Ring returns the action that is due at the moment at, and notes the action as done. It decides by
// the clock, so one alarm too many does no harm. parent is the context of the work: renewals do not end
// with it, because the caller's client may have gone while the work goes on.
func (v *Validity) Ring(parent context.Context, at clock.Moment) (d Due) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch s := &v.state; {
	case !s.Renews && at >= s.Until:
		d.Opens, s.opens = s.opens, false
	case !s.Renews:
	case at >= s.Until:
		d.Expired = true
		return d
	case at >= s.RenewAt && !s.renewing && !s.Capped:
		if v.renewals == nil {
			v.renewals, v.end = context.WithCancel(context.WithoutCancel(parent))
		}
		s.renewing, d.Renewal = true, v.renewals
	}
	v.setAlarm()
	return d
}

// setAlarm sets the alarm if an action is due later. v.mu is held, as in all unexported methods.
func (v *Validity) setAlarm() {
	switch s := &v.state; {
	case !s.Renews && !s.opens:
	case !s.Renews, s.Capped, s.renewing:
		v.alarm.SetAlarm(s.Until)
	default:
		v.alarm.SetAlarm(min(s.RenewAt, s.Until))
	}
}

// EndRenewal ends a renewal that [Validity.Ring] has begun. The next renewal is due at the moment
// next.
func (v *Validity) EndRenewal(next clock.Moment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.renewing, v.state.RenewAt = false, next
	v.setAlarm()
}

// Prolong moves the end of the validity to until, if that is later, and the next renewal to
// renewAt. A renewal that is under way sets renewAt itself.
func (v *Validity) Prolong(until, renewAt clock.Moment, capped bool) (phase Phase, lost error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := &v.state
	if until > s.Until {
		s.Until, s.RenewAt, s.Capped = until, renewAt, capped
	}
	return s.Phase, s.Lost
}

// stop ends renewals and alarms permanently. The local table drops the alarm when the lease
// leaves the table, and an alarm that rings before then does nothing.
func (v *Validity) stop() {
	v.state.Renews = false
	if v.end != nil {
		v.end()
	}
}

// Gone notes that a renewal did not find the entry. holding says that the lease is lost with it. Otherwise there is
// nothing to renew: the answer to the settle will show whether it was applied, or another caller has the key.
func (v *Validity) Gone() (holding bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state.Phase == Holding {
		return true
	}
	v.stop()
	return false
}

// Lose notes that the lease is lost. first reports that no earlier call did, and that it was not over.
func (v *Validity) Lose(why error) (lost error, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state.Lost != nil || v.state.Phase == Over {
		return v.state.Lost, false
	}
	v.state.Lost = why
	v.stop()
	return why, true
}

// End notes that the work is over. first reports that no earlier call did: the caller ends
// the lease. A lease that is settled is renewed until the settle is answered.
func (v *Validity) End(settles bool) (lost error, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state.Phase != Holding {
		return nil, false
	}
	v.state.Phase = Ending
	if !settles {
		v.stop() // a lease that is about to be released needs no renewal
	}
	return v.state.Lost, true
}

// Close notes that the end was answered, or given up. opens says that the key has not opened yet.
func (v *Validity) Close() (opens bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state.Phase = Over
	v.stop()
	opens, v.state.opens = v.state.opens, false
	return opens
}

// Halt ends renewals and alarms of a lease that lapses, or whose end is not a Release or a Settle.
func (v *Validity) Halt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stop()
}

// State returns the present state.
func (v *Validity) State() State {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.state
	if !s.Renews || s.Capped {
		s.RenewAt = clock.Never
	}
	return s
}
