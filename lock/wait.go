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
			d, decided := w.Decided.(*decision)
			if !decided {
				return nil
			}
			e.observed.noteFound(d.entry.Owner)
			return d.errorFor(e)
		case <-timer.C:
			switch w.Stop(clock.Now() < latest) {
			case local.StillWaiting:
				timer.Reset(latest.Until())
			case local.FoundReady: // at the same moment
			case local.FoundUndecided:
				if !l.cfg.failOpen { // else the other work may be about to run without the store
					return errPending
				}
				fallthrough
			case local.FoundHeld:
				return waitError(e, w, held)
			}
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

// withRefusal returns the error of a poll that the store did not serve, with the refusal before it.
func withRefusal(err, known error) error {
	return fmt.Errorf("%w; known before: %s", err, known.Error())
}

var errPending = fmt.Errorf("%w: an earlier call of this process about the key is still unanswered", ErrUnavailable)

// take takes e's key: in this process, behind other callers, and then in the store, which it polls if another process
// has the key. Only the first caller in the queue of a process does so.
func (l *Locker) take(ctx context.Context, e *Lease, began clock.Moment, terms acquireTerms) error {
	until, at := began.Add(terms.wait), began
	var known error // the refusal by a holder for whose end e has waited; nil without one
	for {
		found := e.local.Enter(terms.wait > 0)
		if found.Open {
			break
		}
		err := l.waitHere(ctx, e, found, began, terms.wait)
		at = clock.Now()
		if err == nil {
			if w := found.Waiter; w.FoundElsewhere || w.FoundHolder && !l.cfg.failOpen {
				known = heldBy(e, found.Owner)
			}
			break
		}
		if !l.failsOpen(ctx, err) {
			return err
		}
		// A caller that fails open does not share the failure of another claim. It claims the
		// key itself: without the key, its work could run at the same time as other work of
		// this process. The loop ends, because waitHere refuses a caller whose time is over.
	}
	if terms.outage != nil {
		return terms.outage
	}
	p := poll{until: until, longest: longestPause}
	for ; ; p.nth++ {
		p.began = at
		err := l.claim(ctx, e, at, at.Add(l.cfg.budget))
		if err == nil {
			return nil
		}
		answer := err
		if p.hint, err = l.mayPoll(ctx, err, &known); p.hint == noPoll || until.Until() <= 0 {
			return err
		}
		e.cleanUpClaim()
		p.asked = e.local.Rest(decisionOf(e, answer))
		if p.nth == 0 && l.core.about.Watch != nil {
			// Only after the first refusal: a caller that need not wait does not pay for it.
			var stop func()
			p.wake, stop = l.core.about.Watch(e.entry)
			defer stop()
			if p.wake != nil {
				p.longest = longestWatched
			}
		}
		rested := time.Now()
		err = l.pause(ctx, p, err)
		if e.observed.addWait(rested); err != nil {
			return err
		}
		at = clock.Now()
	}
}

// noPoll is the hint to a caller that does not claim its key again.
const noPoll time.Duration = -1

// mayPoll decides whether a caller that waits claims again after its claim has ended with err: then hint is the
// time that is left of the holder's lease, 0 if that is not known. known is the latest refusal by a holder. After one, a
// claim without an answer ends the wait only if the work can run without the store. It does not run, because the
// store has said that another caller has the key.
func (l *Locker) mayPoll(ctx context.Context, err error, known *error) (hint time.Duration, _ error) {
	refused, _ := errors.AsType[*RefusedError](err)
	switch {
	case refused != nil && errors.Is(err, ErrHeld):
		*known = err
		return refused.Entry.Left, err
	case *known == nil || !errors.Is(err, ErrUnavailable) || errors.Is(err, errors.ErrUnsupported):
		return noPoll, err
	case l.cfg.failOpen:
		return noPoll, *known
	}
	if err = withRefusal(err, *known); send.Gone(ctx) != nil {
		return noPoll, err
	}
	return 0, err
}

// poll is a claim that was refused, and is made again.
type poll struct {
	nth         int // from 0
	began       clock.Moment
	hint        time.Duration // of mayPoll
	longest     time.Duration // pause
	until       clock.Moment  // when the wait ends
	wake, asked <-chan struct{}
}

// minPause is the shortest time between two claims of a waiter that hints or other callers have
// triggered. It bounds the load of the store, because the number of triggers has no bound.
const minPause = 5 * time.Millisecond

// pause returns nil when it is time to claim again after p: after a pause, after a hint that the
// key may be free, or when another caller asks, but not less than minPause after p.
func (l *Locker) pause(ctx context.Context, p poll, refused error) error {
	pause := min(pollPause(p.nth, p.longest, p.hint), p.until.Until())
	due, earliest := clock.Now().Add(pause), p.began.Add(minPause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-p.wake:
		case <-p.asked:
		case <-ctx.Done():
			return gaveUp(ctx, refused)
		case <-l.core.closing.Done():
			return ErrClosed
		}
		if p.wake, p.asked = nil, nil; earliest < due {
			timer.Reset(earliest.Until())
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
