package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
)

// acquire takes e's key or says why not. Every way out of it either makes e a
// running lease, protected or not, or has left nothing behind that the cleaner does not know of.
func (l *Locker) acquire(ctx context.Context, e *Lease) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lock: not acquired: %w", context.Cause(ctx))
	}
	if !l.core.owners.Enter() {
		return ErrClosed
	}
	returned := false
	defer func() {
		if !returned { // an observer has ended this goroutine
			e.endUnreturned()
		}
	}()
	err := l.tryAcquire(ctx, e)
	returned = true
	return err
}

func (l *Locker) tryAcquire(ctx context.Context, e *Lease) error {
	c := l.core
	began := clock.Now()
	at, entered, met, err := began, true, error(nil), error(nil)
	for again := true; again; {
		found := c.keys.Enter((*holder)(e), l.cfg.wait > 0)
		if entered, err, again = true, nil, false; !found.Open {
			entered, err = l.queue(ctx, e, found, began)
			// Work that can run without the store shares no failure with a claim whose
			// work cannot: it asks for the key itself, since without the key in this
			// process it would run at the same time as others. It ends: when its time is over, it is
			// refused where it would have to wait.
			at, again = clock.Now(), !entered && l.failsOpen(ctx, err)
			if entered && found.Waiter.Met() {
				met = heldBy(found.Owner)
			}
		}
	}
	if err == nil {
		err = l.contend(ctx, e, met, at, began.Add(l.cfg.wait))
	}
	if err == nil {
		if c.owners.Closed() {
			// Close may have looked for leases to end before this one was there.
			_ = e.giveBack(ctx)
			return ErrClosed
		}
		return nil
	}

	bypass := entered && l.failsOpen(ctx, err)
	if entered && !bypass {
		l.leave(ctx, e, err) // before observers are called: others wait for it
	}
	if l.observed() {
		l.emit(ctx, &e.identity, eventOf(err), began.Since(), err)
	}
	l.logRefused(ctx, &e.identity, err)
	if bypass {
		l.bypass(ctx, e, err)
		return nil
	}
	c.owners.Leave()
	return err
}

// leave gives up e's key, whose claim ended with err.
func (l *Locker) leave(ctx context.Context, e *Lease, err error) {
	e.cleanUpClaim()
	if callerGone(ctx) { // the caller has left, and others may hear something else
		l.core.keys.Leave((*holder)(e))
		return
	}
	l.core.keys.LeaveWith((*holder)(e), func() local.Decision[*holder] { return decisionOf(e, err) })
}

// callerGone reports whether the caller waits no longer. A context says so a moment after
// its deadline, at which calls end.
func callerGone(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

func eventOf(err error) event.Kind {
	switch {
	case errors.Is(err, errReplay):
		return event.Replayed
	case errors.Is(err, ErrUnknown):
		return event.Unknown
	case errors.Is(err, ErrUnavailable):
		return event.Unavailable
	default:
		return event.Refused
	}
}
