package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// renewals is what a lease needs that is renewed at all.
type renewals struct {
	deadline *time.Timer     // ends the lease whatever its renewal does
	ctx      context.Context //nolint:containedctx // shared by all of them
	stop     context.CancelFunc
}

// renew runs a third of a lease after its grant, and after each renewal, on
// a goroutine that the agenda starts.
func (e *Lease) renew() {
	ctx, ok := e.beginRenewal()
	if !ok {
		return
	}
	cfg := e.locker.cfg
	last := now()
	defer func() { e.scheduleRenewal(last) }() // also if a hook of the store's ends the goroutine
	for {
		answer, err := e.renewOnce(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			last = answer
			return
		}
		// No answer. The deadline ends the lease if that stays so; until then
		// the store is asked again, since every answer may be the one in time.
		e.locker.trouble(ctx, err)
		timer := time.NewTimer(min(cfg.lease/10, time.Second))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// beginRenewal returns the context of the renewals: not the caller's, whose
// client may have gone while the work goes on. ok is false if the lease is over.
func (e *Lease) beginRenewal() (ctx context.Context, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, false
	}
	if e.renewals == nil {
		// Before the first send: a renewal that hangs must not delay it.
		r := &renewals{deadline: time.AfterFunc(e.validUntil.until(), e.expire)}
		r.ctx, r.stop = context.WithCancel(context.WithoutCancel(e.parent))
		e.renewals = r
	}
	return e.renewals.ctx, true
}

// renewOnce asks for a full lease from now, and returns when that was.
func (e *Lease) renewOnce(ctx context.Context) (sent moment, err error) {
	l := e.locker
	sent = now()
	// The hold ends to the millisecond, not up to a lease later.
	lease := min(l.cfg.lease, e.mostHold-time.Duration(sent-e.grantedAt))
	if lease < time.Millisecond {
		return sent, nil
	}
	renew := &renewRequest{store: l.core.store, key: e.key, claim: e.claim(lease)}
	err = l.core.ask(ctx, new(send.Call), send.Terms{Budget: l.cfg.budget}, renew)
	switch {
	case err != nil:
		if ctx.Err() == nil { // else the lease is over, or the caller of Extend has left
			l.emitFailed(ctx, e, callRenew, sent.since(), err)
		}
		return sent, err
	case !renew.ok:
		return sent, e.notRenewed()
	}
	e.mu.Lock()
	lost, phase := e.lost, e.phase
	if until := sent.add(lease - l.core.drift(lease)); until > e.validUntil && !e.stopped {
		e.validUntil, e.capped = until, lease < l.cfg.lease
		if e.renewals != nil {
			e.renewals.deadline.Reset(until.until())
		}
	}
	e.mu.Unlock()
	switch {
	case lost != nil:
		return sent, lost
	case phase == over:
		return sent, errReleased
	}
	l.emit(ctx, e, EventRenewed, 0, nil)
	return sent, nil
}

// notRenewed is the error of a renewal that did not find the lease's entry. Unlike
// a release, a renewal never takes the entry away, so that no unanswered send of
// it explains this; but the lease's own end may.
func (e *Lease) notRenewed() error {
	e.mu.Lock()
	if e.phase != holding {
		if !e.stopped {
			// A settle that got no answer was applied, or another caller has the key.
			// The settle will learn which; there is nothing left to renew.
			e.stopTimers()
			e.openAtTheEnd(false)
		}
		e.mu.Unlock()
		return errReleased
	}
	e.mu.Unlock()
	return e.lose(errTaken)
}

var errReleased = fmt.Errorf("%w: it was released", ErrLost)

func (e *Lease) scheduleRenewal(sent moment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || e.capped {
		return
	}
	e.shard().schedule(e, sent.add(e.locker.cfg.lease/3))
}

// expire runs at the end of validity.
func (e *Lease) expire() {
	e.mu.Lock()
	if e.stopped {
		e.mu.Unlock()
		return
	}
	if left := e.validUntil.until(); left > 0 { // renewed while this was on its way
		e.renewals.deadline.Reset(left)
		e.mu.Unlock()
		return
	}
	why := e.expiry()
	e.mu.Unlock()
	_ = e.lose(why)
}

// checkValidity ends the lease's context if its validity is over. It may be
// called under any lock of the work, which observers may want too; so the rest
// of the loss is done elsewhere.
func (e *Lease) checkValidity() {
	e.mu.Lock()
	if lost := e.lost; lost != nil {
		e.mu.Unlock()
		e.cancel(lost) // the goroutine that found it lost may not have cancelled it yet
		return
	}
	if e.stopped || now() < e.validUntil {
		e.mu.Unlock()
		return
	}
	why := e.expiry()
	e.mu.Unlock()
	if lost, first := e.markLost(why); first {
		go e.dropLost(lost)
	}
}

// expiry says why the validity ended. e.mu is held.
func (e *Lease) expiry() *loss {
	if e.capped {
		return lossByMaxHold(e.locker.cfg.maxHold)
	}
	return errExpired
}

// Extend renews the lease now, for a full lease or what WithMaxHold leaves of
// it. It returns an error that matches [ErrLost] if the lease is over, and one
// that matches [ErrUnavailable] if the store did not serve it within the budget:
// then the lease goes on as it was.
func (e *Lease) Extend(ctx context.Context) error {
	if e == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	e.mu.Lock()
	lost, phase := e.lost, e.phase
	e.mu.Unlock()
	switch {
	case lost != nil:
		return lost
	case phase != holding:
		return errReleased
	}
	_, err := e.renewOnce(ctx)
	return err
}
