package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/httplatch/httplatch/internal/failopen"
)

// enter takes e's key in the gate, or queues for it. A key that is held in this
// process is refused without a round trip unless the caller waits. A key whose
// holder is done, and lacks only the store's word, is waited for in any case.
//
// entered can be true beside an error: the key is e's then, but the store has
// not freed it, and only work that runs without the store may go on.
func (l *Locker) enter(ctx context.Context, e *Lease, began time.Time) (entered bool, err error) {
	c := l.core
	found := c.gate.enter(e, l.cfg.wait > 0)
	here := Entry{State: Held, Owner: c.owner}
	switch {
	case found.open:
		return true, nil
	case found.mismatch:
		return false, &RefusedError{Reason: ErrMismatch, Entry: here}
	case found.waiter == nil && found.ending != nil:
		found.ending()
		return false, errEnding
	case found.waiter == nil:
		return false, &RefusedError{Reason: ErrHeld, Entry: here}
	}
	until := l.cfg.wait
	if found.ending != nil {
		until = max(until, l.cfg.budget)
		found.ending()
	}
	timer := time.NewTimer(time.Until(began.Add(until)))
	defer timer.Stop()
	select {
	case <-found.waiter.ready:
		return true, nil
	case <-timer.C:
		switch c.gate.quit(found.waiter, failopen.From(ctx) != nil) {
		case quitGiven: // in the same instant: it would be wrong to say that somebody holds it
			return true, nil
		case quitUsurped:
			return true, errEnding
		case quitEnding:
			return false, errEnding
		case quitHeld:
		}
		return false, &RefusedError{Reason: ErrHeld, Entry: here}
	case <-ctx.Done():
		c.gate.desert(found.waiter)
		return false, gaveUp(ctx, &RefusedError{Reason: ErrHeld, Entry: here})
	case <-c.closing:
		c.gate.desert(found.waiter)
		return false, ErrClosed
	}
}

var errEnding = fmt.Errorf("%w: the end of an earlier lease on this key is still unanswered", ErrUnavailable)

// contend claims e's key, and while another process holds it, does so again
// until the time is over. Only the first of a process's queue gets here.
func (l *Locker) contend(ctx context.Context, e *Lease, until time.Time) error {
	for polls := 0; ; polls++ {
		err := l.claim(ctx, e, time.Now().Add(l.cfg.budget))
		remaining := time.Until(until)
		if err == nil || remaining <= 0 || !errors.Is(err, ErrHeld) {
			return err
		}
		var refused *RefusedError
		errors.As(err, &refused)
		e.abandonClaim()
		timer := time.NewTimer(min(pollPause(polls, refused.Entry.Left), remaining))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return gaveUp(ctx, err)
		case <-l.core.closing:
			timer.Stop()
			return ErrClosed
		}
	}
}

// pollPause grows from about 10 ms to half a second, all of it by chance, so
// that the processes which wait for one key do not ask together. It is never
// longer than the lease that is in the way.
func pollPause(polls int, hint time.Duration) time.Duration {
	most := min(20*time.Millisecond<<min(polls, 5), 500*time.Millisecond)
	if hint > 0 {
		most = min(most, hint)
	}
	return time.Millisecond + rand.N(most) //nolint:gosec // spreading polls needs no secrecy
}

// gaveUp is the error of a caller that did not wait to the end.
func gaveUp(ctx context.Context, refused error) error {
	return fmt.Errorf("%w: %w", refused, context.Cause(ctx))
}
