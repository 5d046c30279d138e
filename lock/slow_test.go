package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/carry"
	"github.com/httplatch/httplatch/lock"
)

// slowFor is for how long after a send that had no answer in time no caller makes
// its first one itself.
const slowFor = 5 * time.Second

// calls are those that send something, on a lease that is there unless it is what
// they are for. They may fail.
var calls = map[op]func(context.Context, *lock.Locker, *lock.Lease) error{
	claim:   func(ctx context.Context, l *lock.Locker, _ *lock.Lease) error { return once(ctx, l, key+"~claim") },
	renew:   func(ctx context.Context, _ *lock.Locker, e *lock.Lease) error { return e.Extend(ctx) },
	release: func(ctx context.Context, _ *lock.Locker, e *lock.Lease) error { return e.Release(ctx) },
	settle:  func(ctx context.Context, _ *lock.Locker, e *lock.Lease) error { return e.Settle(ctx, nil, time.Second) },
}

// once acquires and releases key.
func once(ctx context.Context, l *lock.Locker, key string) error {
	e, err := l.Acquire(ctx, key)
	if err == nil {
		err = e.Release(ctx)
	}
	return err
}

// bySelf reports whether the caller of an answered call to l makes the send itself.
func bySelf(t *testing.T, s *scripted, l *lock.Locker, o op) (self bool) {
	t.Helper()
	e, err := l.Acquire(t.Context(), key+"~probe")
	require.NoError(t, err)
	s.next(o, func(ctx context.Context, apply func() error) error {
		_, self = ctx.(*carry.Try)
		return apply()
	})
	require.NoError(t, calls[o](t.Context(), l, e))
	require.NoError(t, e.Release(t.Context()))
	forgetReceipt(t, s, key+"~probe")
	return self
}

func forgetReceipt(t *testing.T, s *scripted, key string) {
	t.Helper()
	if s.state(t, key).State == lock.Settled {
		s.forget(t, key)
	}
}

// A store is slow when a send that a caller has made itself had no answer in time.
// One that fails or stalls is not; and of one whose caller was in a hurry nobody
// knows.
func TestWhatMakesAStoreSlow(t *testing.T) {
	const third, hasty = budget / 3, budget / 10
	patient := func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	leaves := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(hasty, cancel)
		return ctx, cancel
	}
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, hasty)
	}
	toldLate := func(ctx context.Context) (context.Context, context.CancelFunc) {
		end := time.Now().Add(hasty)
		ctx, cancel := context.WithDeadline(ctx, end.Add(time.Millisecond))
		return eager{ctx, end}, cancel
	}
	hangs := func(err error) fault {
		return func(ctx context.Context, _ func() error) error { <-ctx.Done(); return err }
	}
	for _, tt := range []struct {
		name   string
		call   op
		caller func(context.Context) (context.Context, context.CancelFunc)
		faults []fault
		slow   bool // since a third of the budget is over
	}{
		{"silent claim", claim, patient, []fault{hangRequest}, true},
		{"silent claim with another error", claim, patient, []fault{hangs(errEOF)}, true},
		{"silent claim twice", claim, patient, []fault{hangRequest, hangRequest}, true},
		{"claim that stalled, then silent", claim, patient, []fault{stall, hangRequest}, true},
		{"silent renewal", renew, patient, []fault{hangRequest}, true},
		{"silent release", release, patient, []fault{hangRequest}, true},
		{"silent settle", settle, patient, []fault{hangRequest}, true},
		{"silent release, caller leaves", release, leaves, []fault{hangRequest}, true},
		{"silent settle, caller leaves", settle, leaves, []fault{hangReply}, true},
		{"silent release, caller has a deadline", release, deadline, []fault{hangReply}, true},
		{"silent settle, caller has a deadline", settle, deadline, []fault{hangRequest}, true},

		{"answered", claim, patient, nil, false},
		{"answered as time is over", claim, patient, []fault{slow(third)}, false},
		{"failed", claim, patient, []fault{loseRequest}, false},
		{"failed, then silent", claim, patient, []fault{loseReply, hangRequest}, false},
		{"refused", claim, patient, []fault{refuse}, false},
		{"stalled", claim, patient, []fault{stall}, false},
		{"stalled until time is over", claim, patient, []fault{hangs(fmt.Errorf("shared: %w", carry.ErrStalled))}, false},
		{"stalled, then answered", claim, patient, []fault{stall, slow(third / 2)}, false},
		{"silent claim, caller leaves", claim, leaves, []fault{hangReply}, false},
		{"silent claim, caller has a deadline", claim, deadline, []fault{hangReply}, false},
		{"silent claim, caller has a deadline that is told late", claim, toldLate, []fault{hangReply}, false},
		{"silent renewal, caller leaves", renew, leaves, []fault{hangRequest}, false},
		{"silent renewal, caller has a deadline", renew, deadline, []fault{hangRequest}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				l := open()
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				ctx, cancel := tt.caller(t.Context())
				defer cancel()
				s.next(tt.call, tt.faults...)
				began := time.Now()
				_ = calls[tt.call](ctx, l, e)
				require.LessOrEqual(t, time.Since(began), 3*third)
				require.Equal(t, !tt.slow, bySelf(t, s, l, claim))
				if tt.slow {
					time.Sleep(time.Until(began.Add(third+slowFor)) - time.Nanosecond)
					require.False(t, bySelf(t, s, l, claim), "it is slow for less than that")
					time.Sleep(time.Nanosecond)
					require.True(t, bySelf(t, s, l, claim), "it is slow for longer than that")
				}
				require.NoError(t, e.Release(t.Context()))
				forgetReceipt(t, s, key)
			})
		})
	}
}

// A slow store is so for all calls of all that share it, and again when it is
// tried and is still slow.
func TestSlowStoreIsSlowForAll(t *testing.T) {
	bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		for range 2 {
			s.next(claim, hangRequest)
			require.NoError(t, once(t.Context(), l, key))
			for o := range calls {
				require.False(t, bySelf(t, s, l, o), o)
				require.False(t, bySelf(t, s, l.With(lock.WithBudget(2*budget)), o), o)
				require.True(t, bySelf(t, s, other, o), o)
			}
			time.Sleep(slowFor)
			for o := range calls {
				require.True(t, bySelf(t, s, l, o), o)
			}
		}
	})
}

// What a send that its caller makes leaves behind is followed for the whole
// budget of the call, however early the send is given up, and those that repeat
// it have no longer than the first.
func TestSendsAreFollowedForTheBudget(t *testing.T) {
	bubbleOver(t, inTimed, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		began := time.Now()
		var tries []time.Duration // until, keep
		s.every(func(ctx context.Context, apply func() error) error {
			try, ok := ctx.(*carry.Try)
			if !ok {
				return apply()
			}
			tries = append(tries, try.Until.Sub(began), try.Keep.Sub(began))
			time.Sleep(budget / 10)
			return stall(ctx, apply)
		}, claim)
		require.NoError(t, once(t.Context(), l, key))
		require.Equal(t, []time.Duration{
			budget / 3, budget,
			budget/3 + budget/10, budget,
			budget/3 + budget/5, budget,
		}, tries)
	})
}
