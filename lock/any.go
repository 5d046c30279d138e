package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Slots returns the keys of n permits, for [Locker.DoAny]: "export=7#1", "export=7#2" and
// "export=7#3" for Slots("export", 3, "7"). Each is an ordinary key, and differs from all keys
// that [Key] composes. Use the same n in all processes: otherwise the largest n is the limit.
// Slots panics if n is not 1 to 64, because a caller is refused only after it has asked for
// each key.
func Slots(name string, n int, parts ...string) []string {
	if n < 1 || n > keytext.MaxSlots {
		panic(fmt.Sprintf("lock: Slots(%q, %d): a key has 1 to %d slots", name, n, keytext.MaxSlots))
	}
	return keytext.Slots(Key(name, parts...), n)
}

// DoAny is [Locker.Do] for one of several keys, whichever is free: fn gets the key that it
// runs under. With the keys of [Slots], at most n callers run at the same time. See
// [Locker.AcquireAny].
func (l *Locker) DoAny(ctx context.Context, keys []string, fn func(ctx context.Context, key string) error) (err error) {
	lease, err := l.AcquireAny(ctx, keys)
	if err != nil {
		return err
	}
	defer releaseAfter(ctx, lease.Release, &err)
	return fn(lease.Context(), lease.Key())
}

// AcquireAny takes one of keys, whichever is free, for work that ends in another function;
// prefer [Locker.DoAny]. [Lease.Key] returns the key that it took.
//
// It begins at a random key, and skips keys that this process has. It is refused if all are
// taken: with [ErrSettled] if all are settled, else with [ErrHeld]. The Left of the
// [RefusedError] is the shortest time that is known. With [WithWait], the callers of this
// process that wait for the same keys get them in order of arrival, at most 64 for each key.
// One of them asks the store, from time to time and when a key becomes free in this process.
// A caller that does not wait may come before them.
//
// Each claim has its own budget. AcquireAny ends with an error of [Locker.Acquire] if the store does
// not answer a claim, unless AcquireAny waits for a holder. The callers that wait behind it share the
// result. Keys are claimed one after the other, so a refusal by 64 keys over a store 10 ms away takes
// 0.64 s, also at the end of a wait. AcquireAny does not wait for a key that cools down. Without any
// keys, it returns an error.
func (l *Locker) AcquireAny(ctx context.Context, keys []string) (*Lease, error) {
	keys, err := sortedKeys(keys)
	if err != nil {
		return nil, err
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("lock: not acquired: %w", context.Cause(ctx))
	case l.core.closing.Err() != nil: // also if no key is asked for, since this process has all
		return nil, ErrClosed
	}
	s := &search{locker: l, keys: keys, began: clock.Now()}
	if l.cfg.wait > 0 {
		err = s.inLine(ctx)
	} else {
		err = s.try(ctx)
	}
	if err == nil {
		return s.lease, nil
	}
	if refused, _ := errors.AsType[*RefusedError](err); refused != nil || !s.tried {
		l.reportRefusal(ctx, s.lease, s.began, err)
	}
	return nil, err
}

type search struct {
	locker *Locker
	keys   []string
	began  clock.Moment
	waited time.Duration
	lease  *Lease // of the last key that was tried

	tried   bool  // try was called: its claims have reported failures of the store
	refused bool  // all keys were taken before: an outage does not free one
	outage  error // set if the store did not serve the search of an earlier caller: it is not asked again
}

var errLineOutage = fmt.Errorf("%w: it did not serve the claim of a caller before this one, and was not asked again", ErrUnavailable)

var errLinePending = fmt.Errorf("%w: the claim of a caller before this one is still unanswered", ErrUnavailable)

// try claims the first free key. The lease is granted if there is no error. A key whose claim or release by
// another caller is under way comes last, because it may be free by then. It waits for no holder, and for no longer than
// the budget.
func (s *search) try(ctx context.Context) error {
	s.tried = true
	refusal := &RefusedError{Reason: ErrSettled}
	var undecided []string
	var until clock.Moment
	from := rand.N(len(s.keys)) //nolint:gosec // spreading callers needs no secrecy
	for i := 0; i < len(s.keys)+len(undecided); i++ {
		var key string
		var held bool
		if i < len(s.keys) {
			key = s.keys[(from+i)%len(s.keys)]
			taken := s.locker.core.keys.Taken(key)
			if taken == local.TakenUndecided {
				undecided = append(undecided, key)
				continue
			}
			held = taken == local.TakenHeld
		} else {
			if key = undecided[i-len(s.keys)]; i == len(s.keys) {
				until = clock.Now().Add(s.locker.cfg.budget)
			}
			held = until.Until() <= 0
		}
		s.lease = s.newLease(ctx, key)
		var err error
		if held {
			err = heldBy(s.lease, "")
		} else {
			err = s.locker.acquire(ctx, s.lease, acquireTerms{oneOf: true, refused: s.refused, outage: s.outage})
		}
		refused, is := errors.AsType[*RefusedError](err)
		if !is {
			return err
		}
		refusal = soonerRefusal(refusal, refused)
	}
	return refusal
}

func (s *search) newLease(ctx context.Context, key string) *Lease {
	e := new(Lease).init(ctx, s.locker, key)
	if e.observed != nil {
		e.observed.began, e.observed.waited = s.began.Wall(), s.waited
	}
	return e
}

// soonerRefusal combines two refusals into the one that is likely to end first. A held key comes
// before one that cools down, because its holder may release it at any time. The time left is
// the shorter of both.
func soonerRefusal(a, b *RefusedError) *RefusedError {
	left := a.Entry.Left
	if left == 0 || b.Entry.Left > 0 && b.Entry.Left < left {
		left = b.Entry.Left
	}
	if a.Entry.State == Free || errors.Is(b, ErrHeld) && !errors.Is(a, ErrHeld) {
		a = b
	}
	near := &RefusedError{Reason: a.Reason, Entry: a.Entry}
	near.Entry.Left = left
	return near
}

// inLine searches until WithWait is over, behind the earlier callers of this process. If the
// store does not serve a search, the callers that are behind it at that time share its result. So
// an outage costs the line one budget, and not one budget for each caller.
func (s *search) inLine(ctx context.Context) error {
	c, wait := s.locker.core, s.locker.cfg.wait
	s.lease = s.newLease(ctx, s.keys[0])
	place, ok := c.lines.Join(s.keys)
	if !ok {
		return heldBy(s.lease, "")
	}
	defer place.Leave()
	until := s.began.Add(wait)
	select {
	case <-place.First:
	default:
		if err := s.awaitTurn(ctx, place, until); err != nil {
			return err
		}
	}
	freed, stop := c.keys.WatchFreed(s.keys) // before the first claim, so that none is missed
	defer stop()
	if _, outage := place.Known(); outage {
		s.outage = errLineOutage // of the first poll
	}
	var known error
	for p := (poll{until: until, longest: longestPause, asked: freed}); ; p.nth++ {
		if s.refused, _ = place.Known(); s.refused {
			known = heldBy(s.lease, "")
		}
		p.began = clock.Now()
		err := s.try(ctx)
		unavailable := errors.Is(err, ErrUnavailable) && !errors.Is(err, errors.ErrUnsupported)
		switch {
		case s.outage != nil: // the store was not asked
		case unavailable && send.Gone(ctx) != nil: // other callers may get another answer
		default:
			place.NoteServed(!unavailable && (err != nil || !s.lease.local.Unprotected()))
		}
		s.outage = nil
		if isRefusal(err) && errors.Is(err, ErrHeld) {
			place.NoteHeld()
		}
		if err == nil {
			return nil
		}
		if p.hint, err = s.locker.mayPoll(ctx, err, &known); p.hint == noPoll || until.Until() <= 0 {
			return err
		}
		rested := clock.Now()
		err = s.locker.pause(ctx, p, err)
		if s.waited += rested.Since(); err != nil {
			return err
		}
	}
}

// awaitTurn waits until s is the first of its line.
//
// If a search has found all keys taken, the end of the wait is a refusal. The caller that searches may be about to
// run without the store, so under WithFailOpen an unanswered first search is a refusal, too.
func (s *search) awaitTurn(ctx context.Context, place *local.Place, until clock.Moment) (err error) {
	queued := clock.Now()
	defer func() { s.waited += queued.Since() }()
	timer := time.NewTimer(until.Until())
	defer timer.Stop()
	select {
	case <-place.First:
		return nil
	case <-s.locker.core.closing.Done():
		return ErrClosed
	case <-timer.C:
	case <-ctx.Done():
	}
	switch allTaken, outage := place.Known(); {
	case outage:
		err = withRefusal(errLineOutage, heldBy(s.lease, ""))
	case !allTaken && !s.locker.cfg.failOpen:
		err = errLinePending
	default:
		err = heldBy(s.lease, "")
	}
	if ctx.Err() != nil {
		return gaveUp(ctx, err)
	}
	return err
}
