package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// Ring implements local.Lease. It does the action that is due: it renews the lease, ends a lost
// lease, or admits the next caller. The local table calls it on the table's own goroutine.
func (h *localLease) Ring() {
	e := (*Lease)(h)
	due := e.validity.Ring(e.parent, clock.Now())
	switch {
	case due.Renewal != nil:
		e.renew(due.Renewal)
	case due.Expired && e.outlived():
		e.validity.Halt() // as it is now, another process may have it
	case due.Expired:
		_ = e.lose(nil)
	case due.Opens: // it is unprotected, and has had the key for the length of a lease
		e.cleanUpClaim()
		e.local.Leave(nil)
	}
}

// renew renews the lease, under ctx, the context of all its renewals. The first renewal is due a
// third of the first lease after the claim was sent, and each further one a third of a whole
// lease after the renewal before it, or earlier ([Lease.span]).
func (e *Lease) renew(ctx context.Context) {
	cfg := e.locker.cfg
	next := clock.Now().Add(cfg.lease / 3)
	defer func() { e.validity.EndRenewal(next) }()
	for {
		due, err := e.renewOnce(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			next = due
			return
		}
		// There was no answer. Until an alarm ends the lease, the store is asked again, since
		// each answer may be in time.
		timer := time.NewTimer(min(cfg.lease/10, time.Second))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// renewOnce renews the lease for its full length, or until the maximum hold is over. It returns the moment at which
// the next renewal is due.
func (e *Lease) renewOnce(ctx context.Context) (next clock.Moment, err error) {
	l, sent := e.locker, clock.Now()
	longest := min(l.cfg.lease, time.Duration(e.claim.lastEnd-sent))
	lease, until, next := e.span(longest, sent)
	if longest < time.Millisecond {
		return next, nil
	}
	renew := call{name: callRenew, key: e.entry, claim: e.claimOf(lease)}
	err = l.call(ctx, send.Terms{Budget: l.cfg.budget}, &renew)
	switch {
	case err != nil:
		if ctx.Err() == nil { // else the lease is over, or the caller of Extend has left
			l.emitFailed(ctx, e, callRenew, sent.Since(), err)
		}
		return next, err
	case !renew.ok:
		// The entry is gone. Unlike a release, a renewal never removes the entry, so an earlier
		// send of the renewal is not the reason. The end of this lease may be the reason.
		if e.validity.Gone() {
			return next, e.lose(errTaken)
		}
		return next, errReleased
	}
	phase, lost := e.validity.Prolong(until, next, lease == longest && lease < l.cfg.lease)
	switch {
	case lost != nil:
		return next, lost
	case phase == validity.Over:
		return next, errReleased
	}
	l.emit(ctx, e, EventRenewed, 0, nil)
	return next, nil
}

// Extend renews the lease now, for a full lease, or for a shorter time if WithMaxHold or the run
// of [Locker.Once] around it ends earlier. It returns an error that matches [ErrLost] if the lease
// is over. It returns an error that matches [ErrUnavailable] if the store did not serve the renewal
// within the budget, or if the work runs unprotected ([WithFailOpen]): then the lease goes on
// unchanged.
func (e *Lease) Extend(ctx context.Context) error {
	if e == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	e.checkValidity() // a lease that is over by the clock is not revived, even before its alarm
	switch valid := e.validity.State(); {
	case valid.Lost != nil:
		return valid.Lost
	case valid.Phase != validity.Holding:
		return errReleased
	case e.local.Unprotected():
		return errBypassed
	}
	_, err := e.renewOnce(ctx)
	return err
}
