package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/failopen"
)

// maxRounds bounds the claims of one acquire: one, one more after an entry of
// an own dead claim was removed, and some for entries that ended between two
// answers.
const maxRounds = 4

// acquire takes key or says why not. Every way out of it either returns a
// granted lease, or has left nothing behind that the reaper does not know of.
func (l *Locker) acquire(ctx context.Context, key string) (*Lease, error) {
	c := l.core
	began := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock: not acquired: %w", context.Cause(ctx))
	}
	if !c.owners.enter() {
		return nil, ErrClosed
	}
	e := &Lease{locker: l, key: key, parent: ctx}
	err := l.enter(ctx, e, began.Add(l.cfg.budget))
	entered := err == nil
	if entered {
		err = l.claim(ctx, e, began.Add(l.cfg.budget))
	}
	if err == nil {
		if c.owners.closed() {
			// Close may have looked for leases to end before this one was there.
			_ = e.Release(ctx)
			return nil, ErrClosed
		}
		return e, nil
	}

	took := time.Since(began)
	switch {
	case errors.Is(err, ErrUnknown):
		l.emit(ctx, EventUnknown, key, took, err)
	case errors.Is(err, ErrUnavailable):
		l.emit(ctx, EventUnavailable, key, took, err)
	default:
		l.emit(ctx, EventRefused, key, took, err)
	}
	if hold := failopen.From(ctx); entered && hold != nil && errors.Is(err, ErrUnavailable) {
		l.bypass(ctx, e, hold, err)
		return nil, err
	}
	e.abandonClaim()
	if entered {
		c.gate.leave(e)
	}
	c.owners.leave()
	return nil, err
}

// enter takes e's key in the gate. A key that is held in this process is
// refused without a round trip. A key whose holder is done, and only waits for
// the store to confirm its end, is not: refusing it would lock the process out
// by its own unanswered call. That end is asked for again, and waited for.
func (l *Locker) enter(ctx context.Context, e *Lease, deadline time.Time) error {
	var timer *time.Timer
	for {
		o := l.core.gate.enter(e)
		if o == nil {
			return nil
		}
		if o.gone == nil {
			return &RefusedError{Reason: ErrHeld, Entry: Entry{State: Held, Owner: l.core.owner}}
		}
		if timer == nil {
			timer = time.NewTimer(time.Until(deadline))
			defer timer.Stop()
		}
		o.kick()
		select {
		case <-o.gone:
		case <-timer.C:
			return fmt.Errorf("%w: the end of an earlier lease on this key is still unanswered", ErrUnavailable)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}

// claim asks the store for e's key until it is granted or refused.
func (l *Locker) claim(ctx context.Context, e *Lease, deadline time.Time) error {
	c := l.core
	for range maxRounds {
		if c.reaper.full() {
			return fmt.Errorf("%w: too many claims are waiting for their clean-up", ErrUnavailable)
		}
		if !time.Now().Before(deadline) {
			break
		}
		// A token is used for one round only: after an answered refusal, the
		// time from which its validity counts would lie too far back.
		e.token, e.unanswered = c.tokens.next(), false
		if !c.prompt {
			e.flight = new(flight)
		}
		// Validity counts from before the first send: whichever send the store
		// applied, its lease did not begin before this moment.
		sent := time.Now()
		claim := l.claimOf(e.token, l.cfg.lease)
		r := exchange(ctx, c, time.Until(deadline), e.flight, func(ctx context.Context) (Entry, error) {
			return c.store.Claim(ctx, e.key, claim)
		})
		e.unanswered = r.unanswered
		e.lastClaim = time.Now()
		if r.err != nil {
			l.trouble(ctx, r.err)
			return r.err
		}

		switch entry := r.value; {
		case entry.State == Held && entry.Token == e.token:
			return l.granted(ctx, e, entry, sent)
		case entry.State == Free:
			// It ended between the claim and the reading of what was in its way.
		case entry.State == Held && c.reaper.orphan(entry.Token):
			// Our own claim, which nobody waited for any more, is in the way. Only
			// this is removed on sight: it is known never to have been granted.
			// That a token is not known to be alive proves nothing.
			if err := l.removeOrphan(ctx, e.key, entry.Token, deadline); err != nil {
				return err
			}
		default:
			return refusal(entry)
		}
		e.abandonClaim()
	}
	return fmt.Errorf("%w: the key changed hands during the claim", ErrUnavailable)
}

func (l *Locker) claimOf(token string, lease time.Duration) Claim {
	return Claim{Token: token, Attempt: 1, Owner: l.core.owner, Lease: lease, Fenced: l.cfg.fenced}
}

// granted makes e a running lease, if enough of it is left.
func (l *Locker) granted(ctx context.Context, e *Lease, entry Entry, sent time.Time) error {
	now := time.Now()
	validUntil := sent.Add(l.cfg.lease - drift(l.cfg.lease))
	if !now.Before(validUntil) {
		// Too late to be of use, because this process was paused. Nothing ran
		// under it, so it is no more than an orphan.
		e.unanswered = true
		return fmt.Errorf("%w: the claim was answered after its lease was over", ErrUnavailable)
	}
	e.fence, e.fenced = entry.Fence, l.cfg.fenced
	e.start(ctx, now, sent, validUntil)
	kind := EventClaimed
	if e.unanswered {
		kind = EventRecovered
	}
	l.emit(ctx, kind, e.key, now.Sub(sent), nil)
	return nil
}

// removeOrphan frees key from a dead claim of this locker.
func (l *Locker) removeOrphan(ctx context.Context, key, token string, deadline time.Time) error {
	r := exchange(ctx, l.core, time.Until(deadline), nil, func(ctx context.Context) (bool, error) {
		return l.core.store.Release(ctx, key, token)
	})
	if r.err != nil {
		l.trouble(ctx, r.err)
		return r.err
	}
	if r.value {
		l.emit(ctx, EventReaped, key, 0, nil)
	}
	return nil
}

func refusal(entry Entry) error {
	reason := ErrHeld
	switch entry.State {
	case Settled:
		reason = ErrSettled
	case Abandoned:
		reason = ErrAbandoned
	case Held, Free:
	}
	return &RefusedError{Reason: reason, Entry: entry}
}

// bypass lets work run without the store's protection. Its claim may have been
// applied, so it counts as granted while the work runs: removing it would let
// another process in beside it, and duplicates in this process are refused by
// the gate even now. Both end with the lease that would have been, so that
// hung work locks nobody out.
func (l *Locker) bypass(ctx context.Context, e *Lease, hold *failopen.Hold, err error) {
	c := l.core
	end := sync.OnceFunc(func() {
		e.abandonClaim()
		c.gate.leave(e)
	})
	timer := time.AfterFunc(l.cfg.lease, end)
	hold.End = sync.OnceFunc(func() {
		timer.Stop()
		end()
		c.owners.leave()
	})
	l.emit(ctx, EventBypassed, e.key, 0, err)
}
