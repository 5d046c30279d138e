package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
)

// Slots returns the keys of n permits, for [Locker.DoAny]: "export=7#1", "export=7#2" and
// "export=7#3" for Slots("export", 3, "7"). Each is an ordinary key, and differs from all
// that [Key] composes. Give all processes the same n: the largest counts. It panics if n is
// not 1 to 64: a refusal has asked for each of them.
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
	defer func() {
		if end := lease.Release(ctx); errors.Is(end, ErrLost) {
			err = errors.Join(err, end)
		}
	}()
	return fn(lease.Context(), lease.Key())
}

// AcquireAny takes one of keys, whichever is free, for work that ends in another function;
// prefer [Locker.DoAny]. [Lease.Key] returns the key that it took.
//
// It begins at a random key, and skips those that this process has. It is refused if all are
// taken: with [ErrSettled] if all are settled, else with [ErrHeld]. The Left of the
// [RefusedError] is the shortest of those that are known. With [WithWait], the callers of this
// process that wait for the same keys get them in order of arrival, at most 64 for each key.
// One of them asks the store, from time to time and when a key becomes free in this process.
// A caller that does not wait may come before them.
//
// A claim that the store does not answer ends AcquireAny, with the errors of [Locker.Acquire]. No
// keys at all are an error.
func (l *Locker) AcquireAny(ctx context.Context, keys []string) (*Lease, error) {
	keys, err := sortedKeys(keys)
	if err != nil {
		return nil, err
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
	if refused, _ := errors.AsType[*RefusedError](err); refused != nil {
		l.refused(ctx, s.lease, s.began, err)
	}
	return nil, err
}

// search is the search of one caller for a free key.
type search struct {
	locker *Locker
	keys   []string
	began  clock.Moment
	waited time.Duration
	lease  *Lease // of the last key that was tried
}

// try claims the first free key. The lease is granted if there is no error.
func (s *search) try(ctx context.Context) error {
	began := clock.Now()
	refusal := &RefusedError{Reason: ErrSettled}
	var open []string
	from := rand.N(len(s.keys)) //nolint:gosec // spreading callers needs no secrecy
	for i := range s.keys {
		key := s.keys[(from+i)%len(s.keys)]
		switch s.locker.core.keys.Taken(key) {
		case local.TakenFirmly:
			s.lease = s.newLease(ctx, key)
			refusal = nearer(refusal, heldBy(s.lease, ""))
		case local.TakenOpenly:
			open = append(open, key)
		case local.NotTaken:
			refused, err := s.claim(ctx, key)
			if refused == nil {
				return err
			}
			refusal = nearer(refusal, refused)
		}
	}
	// The claim or the release of another caller is under way, and may leave a key free.
	for _, key := range open {
		if began.Since() >= s.locker.cfg.budget {
			s.lease = s.newLease(ctx, key)
			refusal = nearer(refusal, heldBy(s.lease, ""))
			break
		}
		refused, err := s.claim(ctx, key)
		if refused == nil {
			return err
		}
		refusal = nearer(refusal, refused)
	}
	return refusal
}

// claim claims key, and does not wait for a holder. It returns a refusal apart from other
// errors.
func (s *search) claim(ctx context.Context, key string) (*RefusedError, error) {
	s.lease = s.newLease(ctx, key)
	err := s.locker.acquire(ctx, s.lease, attempt{oneOf: true})
	refused, _ := errors.AsType[*RefusedError](err)
	return refused, err
}

func (s *search) newLease(ctx context.Context, key string) *Lease {
	e := s.locker.newLease(ctx, key)
	if e.observed != nil {
		e.observed.began, e.observed.waited = s.began.Wall(), s.waited
	}
	return e
}

// nearer returns the refusal that says more about the end of the wait, with the shorter time
// left of both. A holder may end at any time, and a receipt does not.
func nearer(a, b *RefusedError) *RefusedError {
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

// inLine searches until WithWait is over, behind the callers of this process that came before.
func (s *search) inLine(ctx context.Context) error {
	c, wait := s.locker.core, s.locker.cfg.wait
	s.lease = s.newLease(ctx, s.keys[0])
	place, ok := c.lines.Join(strings.Join(s.keys, "\x00"), local.MaxInLine*len(s.keys))
	if !ok {
		return heldBy(s.lease, "")
	}
	defer place.Leave()
	until := s.began.Add(wait)
	select {
	case <-place.First():
	default:
		if err := s.awaitTurn(ctx, place, until); err != nil {
			return err
		}
	}
	freed, stop := c.keys.WatchFreed(s.keys) // before the first claim, so that none is missed
	defer stop()
	for polls := 0; ; polls++ {
		at := clock.Now()
		err := s.try(ctx)
		refused, _ := errors.AsType[*RefusedError](err)
		remaining := until.Until()
		if refused == nil || remaining <= 0 {
			return err
		}
		pause := min(pollPause(polls, refused.Entry.Left), remaining)
		rested := clock.Now()
		err = s.locker.rest(ctx, pause, nil, freed, at.Add(minPause), err)
		if s.waited += rested.Since(); err != nil {
			return err
		}
	}
}

// awaitTurn waits until s is the first of its line.
func (s *search) awaitTurn(ctx context.Context, place *local.Place, until clock.Moment) error {
	queued := clock.Now()
	defer func() { s.waited += queued.Since() }()
	held := heldBy(s.lease, "")
	timer := time.NewTimer(until.Until())
	defer timer.Stop()
	select {
	case <-place.First():
		return nil
	case <-timer.C:
		return held
	case <-ctx.Done():
		return gaveUp(ctx, held)
	case <-s.locker.core.closing:
		return ErrClosed
	}
}
