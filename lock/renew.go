package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// start makes a claim of that lease, which was sent, and granted that much later, a running
// lease. Its validity counts from when it was sent.
func (e *Lease) start(sent clock.Moment, took, lease time.Duration) {
	cfg := &e.locker.cfg
	if cfg.detached {
		e.parent = context.WithoutCancel(e.parent)
	}
	e.claim.grantedAt, e.claim.mostHold = sent.Add(took), cfg.maxHold-took
	due := sent.Add(lease / 3)
	e.local.Due = due
	e.validity.Start(sent.Add(lease-e.locker.core.drift(lease)), due, cfg.maxHold == lease)
	met := e.local.Grant() // no other goroutine reads the rest before, so that it needs no lock
	e.locker.core.keys.Expect((*holder)(e), due)
	if met {
		e.locker.core.keys.Share((*holder)(e), grantOf(e))
	}
}

// ring does what is due of a lease, and runs on a goroutine that the alarms start.
func (e *Lease) ring() {
	due := e.validity.Ring(e.parent, clock.Now(), e.setAlarm)
	switch {
	case due.Renewal != nil:
		e.renew(due.Renewal)
	case due.Expired != validity.NotExpired:
		_ = e.lose(lossBy(due.Expired, e.locker.cfg.maxHold))
	case due.Opens != validity.OpensNothing:
		e.open(due.Opens)
	}
}

// setAlarm has e rung at that moment. Its validity is locked, so that no alarm is set after
// the end.
func (e *Lease) setAlarm(next clock.Moment) { e.locker.core.keys.Schedule((*holder)(e), next) }

// renew runs a third of the first lease after its claim was sent, and a third of a whole one
// after each renewal, with the context of the renewals.
func (e *Lease) renew(ctx context.Context) {
	cfg := e.locker.cfg
	last := clock.Now()
	// Also if a hook of the store ends the goroutine.
	defer func() { e.validity.EndRenewal(last.Add(cfg.lease/3), e.setAlarm) }()
	for {
		answer, err := e.renewOnce(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			last = answer
			return
		}
		// No answer. An alarm ends the lease if that stays so; until then
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

// renewOnce asks for a full lease from now, and returns when that was.
func (e *Lease) renewOnce(ctx context.Context) (sent clock.Moment, err error) {
	l := e.locker
	sent = clock.Now()
	lease := e.claim.left(l.cfg.lease, sent)
	if lease < time.Millisecond {
		return sent, nil
	}
	renew := &renewRequest{store: l.core.store, key: string(e.entry), claim: e.claimOf(lease)}
	err = l.core.ask(ctx, new(send.Call), send.Terms{Budget: l.cfg.budget}, renew)
	switch {
	case err != nil:
		if ctx.Err() == nil { // else the lease is over, or the caller of Extend has left
			l.emitFailed(ctx, &e.identity, callRenew, sent.Since(), err)
		}
		return sent, err
	case !renew.ok:
		// Unlike a release, a renewal never removes the entry, so an unanswered send of it
		// does not explain this. The lease's own end may.
		if e.validity.Gone(e.setAlarm) {
			return sent, e.lose(errTaken)
		}
		return sent, errReleased
	}
	lost, phase := e.validity.Prolong(sent.Add(lease-l.core.drift(lease)), sent.Add(lease/3), lease < l.cfg.lease)
	switch {
	case lost != nil:
		return sent, lost
	case phase == validity.Over:
		return sent, errReleased
	}
	l.emit(ctx, &e.identity, event.Renewed, 0, nil)
	return sent, nil
}

var errReleased = fmt.Errorf("%w: it was released", ErrLost)

// open lets other callers of this process claim the key. What is left of a lease that was
// to be released has no holder, and is removed.
func (e *Lease) open(how validity.Opens) {
	switch how {
	case validity.OpensOrphaned:
		e.addOrphan()
	case validity.OpensBypassed:
		e.cleanUpClaim()
	case validity.OpensKey, validity.OpensNothing:
	}
	e.locker.core.keys.Leave((*holder)(e))
}

// Extend renews the lease now, for a full lease or what WithMaxHold leaves of
// it. It returns an error that matches [ErrLost] if the lease is over, and one
// that matches [ErrUnavailable] if the store did not serve it within the budget:
// then the lease goes on as it was, as does work that runs unprotected
// ([WithFailOpen]).
func (e *Lease) Extend(ctx context.Context) error {
	if e == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	e.checkValidity() // what is over by the clock is not revived, whether or not an alarm has rung
	switch lost, phase := e.validity.State(); {
	case lost != nil:
		return lost
	case phase != validity.Holding:
		return errReleased
	case e.local.Bypassed():
		return errBypassed
	}
	_, err := e.renewOnce(ctx)
	return err
}
