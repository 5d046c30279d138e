package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/failopen"
)

// errReplay is the reason that ends an acquire of Once which found a receipt.
var errReplay = errors.New("lock: a receipt was found")

// acquire takes e's key or says why not. Every way out of it either makes e a
// running lease, or has left nothing behind that the cleaner does not know of.
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
	began := now()
	e.story = l.story(ctx)
	at, entered, err := began, true, error(nil)
	for again := true; again; {
		found := c.gate.enter(e, l.cfg.wait > 0)
		if entered, err, again = true, nil, false; !found.open {
			entered, err = l.queue(ctx, e, found, began)
			at, again = now(), l.asksAgain(ctx, err, began)
		}
	}
	if err == nil {
		err = l.contend(ctx, e, at, began.add(l.cfg.wait))
	}
	if err == nil {
		if c.owners.Closed() {
			// Close may have looked for leases to end before this one was there.
			_ = e.giveBack(ctx)
			return ErrClosed
		}
		return nil
	}

	hold := (*failopen.Hold)(nil)
	if entered {
		if hold = l.holdOf(ctx, err); hold == nil {
			l.leave(ctx, e, err) // before observers are called: others wait for it
		}
	}
	if l.observed() {
		l.emit(ctx, e, eventOf(err), began.since(), err)
	}
	l.logRefused(ctx, e, err)
	if hold != nil {
		l.bypass(ctx, e, hold, err)
		return err
	}
	c.owners.Leave()
	return err
}

// holdOf returns what ctx asks for if the store does not answer, nil if it asks for
// nothing or err is another failure.
func (*Locker) holdOf(ctx context.Context, err error) *failopen.Hold {
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, errors.ErrUnsupported) || callerGone(ctx) {
		return nil
	}
	return failopen.From(ctx)
}

// leave gives up e's key, whose claim ended with err.
func (l *Locker) leave(ctx context.Context, e *Lease, err error) {
	e.leaveClaim()
	if callerGone(ctx) {
		err = nil // the caller has left, and others may hear something else
	}
	l.core.gate.leaveWith(e, err)
}

// asksAgain reports whether a caller that has waited for another one's claim, and
// shares its failure, is to ask for the key itself: its work can run without the
// store, and the other one's will not.
func (l *Locker) asksAgain(ctx context.Context, err error, began moment) bool {
	return err != nil && l.holdOf(ctx, err) != nil && !errors.Is(err, errEnding) && began.since() < l.cfg.budget
}

// callerGone reports whether the caller waits no longer. A context says so a moment after
// its deadline, at which calls end.
func callerGone(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

func eventOf(err error) EventKind {
	switch {
	case errors.Is(err, errReplay):
		return EventReplayed
	case errors.Is(err, ErrUnknown):
		return EventUnknown
	case errors.Is(err, ErrUnavailable):
		return EventUnavailable
	default:
		return EventRefused
	}
}

// bypass lets work run without the store's protection. Its claim may have been
// applied, so it counts as granted while the work runs: removing it would let
// another process in as well, and duplicates in this process are refused by
// the gate even now. Both end with the lease that would have been, so that
// hung work keeps no other caller out.
func (l *Locker) bypass(ctx context.Context, e *Lease, hold *failopen.Hold, err error) {
	c := l.core
	c.gate.bypass(e)
	end := sync.OnceFunc(func() {
		e.leaveClaim()
		c.gate.leave(e)
	})
	timer := time.AfterFunc(l.cfg.lease, end)
	l.emit(ctx, e, EventBypassed, 0, err)
	l.logBypassed(ctx, e, err)
	hold.End = sync.OnceFunc(func() { // after those, which can end this goroutine: then acquire sees to it
		timer.Stop()
		end()
		c.owners.Leave()
	})
}
