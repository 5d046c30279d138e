package lock

import (
	"context"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// validity is for how long a lease can be relied on, and whether it still is. Only its
// methods write it. Under its lock the shard of its key may be locked, to set the lease's
// alarm; no store and no observer is called.
type validity struct {
	mu       sync.Mutex
	phase    phase
	opens    opens
	capped   bool // until is as late as WithMaxHold allows
	renewing bool
	stopped  bool // it is no longer renewed, and its end is no loss

	until    clock.Moment
	renewAt  clock.Moment // never if it is no longer renewed
	renewals *renewals    // nil until the first
	lost     *loss
}

type phase uint8

const (
	holding phase = iota
	ended         // Release or Settle was called
	over          // and was answered, or nothing more can be done
)

// opens is what happens when the validity of a lease is over that is not renewed.
type opens uint8

const (
	opensNothing  opens = iota
	opensKey            // others of this process may claim
	opensOrphaned       // and what it may have left in the store is removed
	opensBypassed       // likewise; it was never granted, and its work runs unprotected
)

// renewals is what all renewals of a lease share.
type renewals struct {
	ctx  context.Context //nolint:containedctx // ends with the lease
	stop context.CancelFunc
}

// start sets what no other goroutine knows of yet, so that v.mu need not be held.
func (v *validity) start(until, renewAt clock.Moment, capped bool) {
	v.until, v.renewAt, v.capped = until, renewAt, capped
}

// alarm is what is due of a lease.
type alarm struct {
	renewals *renewals // of which one is to be sent; else nil
	expired  *loss     // the lease is over, because of this; else nil
	opens    opens
}

// ringLocked says what is due at that moment, and notes that it is done. It knows by the clock,
// so that one alarm too many does no harm. v.mu is held.
func (v *validity) ringLocked(parent context.Context, at clock.Moment, maxHold time.Duration) (a alarm) {
	switch {
	case v.stopped && at >= v.until:
		a.opens, v.opens = v.opens, opensNothing
	case v.stopped:
	case at >= v.until:
		a.expired = v.expiryLocked(maxHold)
	case at >= v.renewAt && !v.renewing:
		a.renewals = v.beginRenewalLocked(parent)
	}
	return a
}

// nextLocked is when something will be due that is not yet, never if nothing will. v.mu is held.
func (v *validity) nextLocked() clock.Moment {
	switch {
	case v.stopped && v.opens == opensNothing:
		return clock.Never
	case v.stopped, v.renewing:
		return v.until
	default:
		return min(v.renewAt, v.until)
	}
}

// beginRenewalLocked returns the renewals' context: not parent, the caller's, whose client may
// have gone while the work goes on. v.mu is held.
func (v *validity) beginRenewalLocked(parent context.Context) *renewals {
	v.renewing = true
	if v.renewals == nil {
		r := new(renewals)
		r.ctx, r.stop = context.WithCancel(context.WithoutCancel(parent))
		v.renewals = r
	}
	return v.renewals
}

// endRenewalLocked says that the next renewal is due then. v.mu is held.
func (v *validity) endRenewalLocked(next clock.Moment) {
	v.renewing, v.renewAt = false, next
	if v.capped {
		v.renewAt = clock.Never
	}
}

// prolong moves the end of the validity to until, if that is later, and the next renewal to
// renewAt. One that is under way sets its own.
func (v *validity) prolong(until, renewAt clock.Moment, capped bool) (lost *loss, phase phase) {
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

// stopLocked ends renewal and alarms for good. v.mu is held. The local keys take the lease off the
// alarms as it leaves, and an alarm that rings before does nothing.
func (v *validity) stopLocked() {
	v.stopped = true
	if v.renewals != nil {
		v.renewals.stop()
	}
}

// openLaterLocked has others get the key when the validity is over, since it is not renewed any
// more. v.mu is held.
func (v *validity) openLaterLocked(how opens) {
	v.stopLocked()
	v.opens = how
}

// bypassLocked makes it that of a lease which was not granted, until then. v.mu is held.
func (v *validity) bypassLocked(until clock.Moment) {
	v.until = until
	v.openLaterLocked(opensBypassed)
}

// lose notes that the lease was lost. first reports that it was this call that did.
func (v *validity) lose(why *loss) (lost *loss, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil || v.phase == over {
		return v.lost, false
	}
	v.lost = why
	v.stopLocked()
	return why, true
}

// end notes that the work is over. first reports that it was this call that did: its
// caller has the lease's end. A lease that is settled is renewed until that is answered.
func (v *validity) end(settles bool) (lost *loss, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase != holding {
		return nil, false
	}
	v.phase = ended
	if !settles {
		v.stopLocked() // what is about to be given back needs no renewal
	}
	return v.lost, true
}

// close notes that all is over. opens is what would have happened at the end of the
// validity, and will not.
func (v *validity) close() (opens opens) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.phase = over
	v.stopLocked()
	opens, v.opens = v.opens, opensNothing
	return opens
}

// halt ends renewal and alarms: the lease is given back, or lapses since its Locker was
// closed.
func (v *validity) halt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stopLocked()
}

// check is ringLocked for a caller who wants to rely on the lease now.
func (v *validity) check(maxHold time.Duration) (lost, expired *loss) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.stopped && clock.Now() >= v.until {
		expired = v.expiryLocked(maxHold)
	}
	return v.lost, expired
}

// expiryLocked says why the validity has ended. v.mu is held.
func (v *validity) expiryLocked(maxHold time.Duration) *loss {
	if v.capped {
		return lossByMaxHold(maxHold)
	}
	return errExpired
}

// state is what others ask.
func (v *validity) state() (lost *loss, phase phase) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost, v.phase
}

// renewed reports whether it still is, and until when it is valid.
func (v *validity) renewed() (renewed bool, until clock.Moment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.stopped, v.until
}
