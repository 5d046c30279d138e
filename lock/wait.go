package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// waitHere waits for e's key behind another lease of this process, until e has it, or there is a decision,
// or the time is over. A held key is refused without a round trip, unless the caller waits. Where a call of
// this process about the key lacks its answer, every caller waits: for wait or the budget, whichever is
// longer.
func (l *Locker) waitHere(ctx context.Context, e *Lease, found local.Entrance, began clock.Moment, wait time.Duration) error {
	c, w, held := l.core, found.Waiter, heldBy(e, found.Owner)
	e.observed.noteFound(found.Owner)
	if found.Confirm != nil {
		found.Confirm()
	}
	switch {
	case found.Mismatch:
		held.Reason = ErrMismatch
		return held
	case w == nil && found.Confirm != nil && !l.cfg.failOpen:
		return errPending
	case w == nil:
		return held
	}
	if wait > 0 || found.Confirm != nil {
		queued := time.Now()
		defer func() { e.observed.addWait(queued) }()
	}
	latest := began.Add(max(wait, l.cfg.budget))
	until := latest
	if wait > 0 && found.Confirm == nil {
		until = began.Add(wait)
	}
	timer := time.NewTimer(until.Until())
	defer timer.Stop()
	for {
		select {
		case <-w.Ready:
			return readyResult(e, w)
		case <-timer.C:
			switch w.Stop(clock.Now() < latest) {
			case local.StillWaiting:
				timer.Reset(latest.Until())
				continue
			case local.FoundReady: // at the same moment
				return readyResult(e, w)
			case local.FoundUndecided:
				if !l.cfg.failOpen { // else the other work may be about to run without the store
					return errPending
				}
			case local.FoundHeld:
			}
			return waitError(e, w, held)
		case <-ctx.Done():
			if w.Cancel() == local.FoundUndecided {
				return gaveUp(ctx, errPending)
			}
			return gaveUp(ctx, waitError(e, w, held))
		case <-c.closing.Done():
			w.Cancel()
			return ErrClosed
		}
	}
}

// readyResult returns the result of a wait whose waiter is ready.
func readyResult(e *Lease, w *local.Waiter) error {
	d, decided := w.Decided.(*decision)
	if !decided {
		return nil
	}
	e.observed.noteFound(d.entry.Owner)
	return d.errorFor(e)
}

// waitError returns the error of a wait that has ended: held, and the error of the latest poll if
// the store did not serve it. A caller that fails open gets held alone: the store has said that another
// process has the key.
func waitError(e *Lease, w *local.Waiter, held *RefusedError) error {
	d, is := w.Unserved.(*decision)
	if !is || e.locker.cfg.failOpen {
		return held
	}
	return withRefusal(d.errorFor(e), held)
}

// heldBy returns the refusal of e, whose caller does not wait for the holder.
func heldBy(e *Lease, owner string) *RefusedError {
	return &RefusedError{Reason: ErrHeld, Entry: Entry{Key: e.label(), State: Held, Owner: owner}}
}

// withRefusal returns the error of a poll that the store did not serve, with the refusal before it.
func withRefusal(err, known error) error {
	return fmt.Errorf("%w; known before: %s", err, known.Error())
}

var errPending = fmt.Errorf("%w: an earlier call of this process about the key is still unanswered", ErrUnavailable)

// takeInStore claims e's key, and if another process holds it, polls until the moment until. Only
// the first caller in the queue of a process does so. known is the refusal by an earlier
// holder, nil if there was none. After a refusal, a poll without an answer of the store ends the
// wait only if the work can run without the store. It does not run if the refusal was the store's.
func (l *Locker) takeInStore(ctx context.Context, e *Lease, known error, began, until clock.Moment) error {
	var wake <-chan struct{}
	longest := longestPause
	for polls := 0; ; polls++ {
		err := l.claim(ctx, e, began, began.Add(l.cfg.budget))
		answer, hint := err, time.Duration(0)
		refused, _ := errors.AsType[*RefusedError](err)
		switch {
		case errors.Is(err, ErrHeld):
			known, hint = err, refused.Entry.Left
		case l.cfg.failOpen && known != nil && errors.Is(err, ErrUnavailable):
			return known // the store has said that another process has the key
		case known == nil || l.cfg.failOpen || !errors.Is(err, ErrUnavailable) || errors.Is(err, errors.ErrUnsupported):
			return err
		default:
			if err = withRefusal(err, known); callerGone(ctx) {
				return err
			}
		}
		remaining := until.Until()
		if remaining <= 0 {
			return err
		}
		e.cleanUpClaim()
		asked := e.local.Rest(decisionOf(e, answer))
		if polls == 0 && l.core.watch != nil {
			// Only after the first refusal: a caller that need not wait does not pay for it.
			var stop func()
			wake, stop = l.core.watch(string(e.entry))
			defer stop()
			if wake != nil {
				longest = longestWatched
			}
		}
		pause := min(pollPause(polls, longest, hint), remaining)
		rested := time.Now()
		end := l.awaitNextPoll(ctx, pause, wake, asked, began.Add(minPause), err)
		e.observed.addWait(rested)
		if end != nil {
			return end
		}
		began = clock.Now()
	}
}

// minPause is the shortest time between two claims of a waiter that hints or other callers have
// triggered. It bounds the load of the store, because the number of triggers has no bound.
const minPause = 5 * time.Millisecond

// awaitNextPoll returns nil when it is time to claim again: after pause, after a hint that the
// key may be free, or when another caller asks, but not before earliest.
func (l *Locker) awaitNextPoll(ctx context.Context, pause time.Duration, wake, asked <-chan struct{}, earliest clock.Moment, refused error) error {
	due := clock.Now().Add(pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	claim := func() {
		wake, asked = nil, nil
		if earliest < due {
			timer.Reset(earliest.Until())
		}
	}
	for {
		select {
		case <-timer.C:
			return nil
		case <-wake:
			claim()
		case <-asked:
			claim()
		case <-ctx.Done():
			return gaveUp(ctx, refused)
		case <-l.core.closing.Done():
			return ErrClosed
		}
	}
}

// The longest pauses between two polls: of a waiter that only polls, and of one that the store
// notifies, which polls in case a notification is lost.
const (
	longestPause   = 500 * time.Millisecond
	longestWatched = 2 * time.Second
)

// pollPause returns a random pause whose mean grows from about 10 ms to half of longest, so that
// processes which wait for one key do not poll together. It is at most a millisecond longer than hint, the
// time that is left of the holder's lease, unless hint is 0 because the store does not know that time.
func pollPause(polls int, longest, hint time.Duration) time.Duration {
	most := min(20*time.Millisecond<<min(polls, 7), longest)
	if hint > 0 {
		most = min(most, hint)
	}
	return time.Millisecond + rand.N(most) //nolint:gosec // spreading polls needs no secrecy
}

// gaveUp returns the error of a caller that left before the end of its wait.
func gaveUp(ctx context.Context, refused error) error {
	return fmt.Errorf("%w: %w", refused, context.Cause(ctx))
}

// callerGone reports whether the caller no longer waits.
func callerGone(ctx context.Context) bool { return send.Gone(ctx) != nil }
