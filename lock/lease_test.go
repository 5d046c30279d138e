package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

func TestShortWorkIsNeverRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error {
			time.Sleep(lease/3 - time.Millisecond)
			return nil
		}))
		time.Sleep(time.Minute)
		require.Zero(t, s.count(renew))
		require.Equal(t, 1, s.count(claim))
		require.Equal(t, 1, s.count(release))
	})
}

func TestLongWorkIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l, other := open(lock.WithObserver(seen.observe)), open()
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			for range 30 {
				time.Sleep(lease / 10)
				_, err := other.Acquire(ctx, key)
				require.ErrorIs(t, err, lock.ErrHeld)
				require.NoError(t, ctx.Err())
			}
			return nil
		}))
		require.GreaterOrEqual(t, seen.count(lock.EventRenewed), 8)
	})
}

func TestRenewalGoesOnWhenTheClientHasGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, l.Do(ctx, key, func(ctx context.Context) error {
			cancel()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			time.Sleep(3 * lease) // work that does not look at its context
			require.Equal(t, lock.Held, s.state(t, key).State)
			return nil
		}))
		require.Equal(t, lock.Free, s.state(t, key).State, "released although the context had ended")
	})
}

func TestMaxHoldEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithMaxHold(10 * time.Second))
		began := time.Now()
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.ErrorContains(t, context.Cause(ctx), "maximum of 10s")
			held := time.Since(began)
			require.LessOrEqual(t, held, 10*time.Second)
			require.Greater(t, held, 10*time.Second-200*time.Millisecond)
			time.Sleep(200 * time.Millisecond)
			require.Equal(t, lock.Free, s.state(t, key).State, "not held past its maximum in the store either")
			return nil
		})
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestTransientRenewalFailureIsSurvived(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.next(renew, hangReply, loseRequest, hangRequest, refuse)
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			time.Sleep(2 * lease)
			return ctx.Err()
		}))
	})
}

// A renewal that blocks, even beyond its context, must not extend the validity.
func TestNotifiedNoLaterThanTheEndOfValidity(t *testing.T) {
	for name, f := range map[string]fault{"hangs": hangRequest, "stuck": stuck(time.Minute), "refused": refuse, "lost": loseRequest} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.every(f, renew)
				began := time.Now()
				err := l.Do(t.Context(), key, func(ctx context.Context) error {
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
					require.Less(t, time.Since(began), lease)
					require.Greater(t, time.Since(began), lease*9/10)
					return nil
				})
				require.ErrorIs(t, err, lock.ErrLost)
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// The must-fail twin: a holder that trusts its renewer instead of its own
// clock would not be notified while the renewal blocks.
func TestStuckRenewalDoesBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted().next(renew, stuck(time.Minute))
		_, err := s.Claim(t.Context(), key, lock.Claim{Token: "t", Lease: lease})
		require.NoError(t, err)
		began := time.Now()
		_, _ = s.Renew(t.Context(), key, lock.Claim{Token: "t", Lease: lease})
		require.Greater(t, time.Since(began), lease)
	})
}

func TestRemovedKeyIsNeverCreatedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			s.forget(t, key)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.Equal(t, lock.Free, s.state(t, key).State)
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestExtend(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		time.Sleep(lease / 4)
		require.NoError(t, e.Extend(t.Context()))
		require.Equal(t, lease, s.state(t, key).Left)
		s.every(refuse, renew)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrUnavailable)
		require.NoError(t, e.Context().Err())
		s.every(nil, renew)
		s.forget(t, key)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
		require.NoError(t, e.Release(t.Context()), "the second call")

		e, err = l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
	})
}

func TestSettleIsACoolDown(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Settle(t.Context(), nil, 10*time.Second))
		require.Error(t, e.Context().Err())
		time.Sleep(time.Second)
		_, err = l.Acquire(t.Context(), key)
		var refused *lock.RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, lock.ErrSettled)
		require.Equal(t, 9*time.Second, refused.Entry.Left)
		require.NotContains(t, err.Error(), key)
		time.Sleep(9 * time.Second)
		e, err = l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		require.Panics(t, func() { _ = e.Settle(t.Context(), nil, 0) })
	})
}

func TestFromContext(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		_, ok := lock.FromContext(t.Context())
		require.False(t, ok)
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			outer, ok := lock.FromContext(ctx)
			require.True(t, ok)
			_, fenced := outer.Fence()
			require.False(t, fenced)
			return l.Do(ctx, lock.Key("order", "7"), func(ctx context.Context) error {
				inner, ok := lock.FromContext(context.WithoutCancel(ctx))
				require.True(t, ok)
				require.NotSame(t, outer, inner)
				return nil
			})
		}))
	})
}

func TestNilLease(t *testing.T) {
	var e *lock.Lease
	require.NoError(t, e.Release(t.Context()))
	require.ErrorIs(t, e.Settle(t.Context(), nil, time.Second), lock.ErrLost)
	require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
	require.NoError(t, e.Context().Err())
	_, ok := e.Fence()
	require.False(t, ok)
}

func TestFencesGrow(t *testing.T) {
	l := lock.New(lock.NewMemory(), lock.WithFencing())
	last := int64(0)
	for range 1000 {
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			e, _ := lock.FromContext(ctx)
			fence, ok := e.Fence()
			require.True(t, ok)
			require.Greater(t, fence, last)
			last = fence
			return nil
		}))
	}
	require.NoError(t, l.Close(t.Context()))
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	type sentinel struct{ int }
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		require.PanicsWithValue(t, sentinel{1}, func() {
			_ = l.Do(context.Background(), key, func(context.Context) error { panic(sentinel{1}) })
		})
		require.Equal(t, lock.Free, s.state(t, key).State)

		var wg sync.WaitGroup
		wg.Go(func() {
			_ = l.Do(context.Background(), key, func(context.Context) error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		require.Equal(t, lock.Free, s.state(t, key).State)

		ctx, cancel := context.WithCancel(t.Context())
		err := l.Do(ctx, key, func(ctx context.Context) error { cancel(); return ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, lock.Free, s.state(t, key).State)
	})
}

func TestAcquireWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("left"))
		_, err := l.Acquire(ctx, key)
		require.ErrorContains(t, err, "left")
		require.Zero(t, s.count(claim))
	})
}

// A caller that leaves during its claim leaves nothing behind.
func TestCanceledClaimIsSwept(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.next(claim, late(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := l.Acquire(ctx, key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 50*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Equal(t, lock.Free, s.state(t, key).State)
	})
}

func TestHeldElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		e, err := other.Acquire(t.Context(), key)
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), key)
		var refused *lock.RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NotEmpty(t, refused.Entry.Owner)
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 1, s.count(claim)-1)
	})
}

func TestBadKeys(t *testing.T) {
	l := lock.New(lock.NewMemory())
	for name, k := range map[string]string{"empty": "", "long": string(make([]byte, lock.MaxKeyBytes+1)), "reserved": "once:1"} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Acquire(t.Context(), k)
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrUnavailable)
		})
	}
	e, err := l.Acquire(t.Context(), string(make([]byte, lock.MaxKeyBytes)))
	require.NoError(t, err)
	require.NoError(t, e.Release(t.Context()))
}

func TestWithSharesEverything(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		slow := l.With(lock.WithMaxHold(time.Hour))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		_, err = slow.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 1, s.count(claim))
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, slow.Close(t.Context()))
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrClosed)
	})
}

func TestKeyComposesInjectively(t *testing.T) {
	require.Equal(t, "user=42", lock.Key("user", "42"))
	require.Equal(t, "order=7&eu", lock.Key("order", "7", "eu"))
	require.Equal(t, "user=a~26b", lock.Key("user", "a&b"))
	require.NotEqual(t, lock.Key("user", "a", "b"), lock.Key("user", "a&b"))
	require.NotEqual(t, lock.Key("a=b", "c"), lock.Key("a", "b=c"))
}

func TestOptionsThatContradict(t *testing.T) {
	for name, open := range map[string]func(){
		"nil store":        func() { lock.New(nil) },
		"short lease":      func() { lock.New(lock.NewMemory(), lock.WithLease(900*time.Millisecond)) },
		"hold below lease": func() { lock.New(lock.NewMemory(), lock.WithMaxHold(time.Second)) },
		"with, later":      func() { lock.New(lock.NewMemory()).With(lock.WithBudget(time.Minute)) },
		"zero lease":       func() { lock.WithLease(0) },
		"negative budget":  func() { lock.WithBudget(-1) },
		"nil observer":     func() { lock.WithObserver(nil) },
		"nil logger":       func() { lock.WithLogger(nil) },
		"nil option":       func() { lock.New(lock.NewMemory(), nil) },
		"hold of no time":  func() { lock.WithMaxHold(0) },
	} {
		t.Run(name, func(t *testing.T) { require.Panics(t, open) })
	}
}

// A process that was paused runs its work before any timer. Here both are due
// in one instant, and the work often comes first.
func TestContextIsOverInTheInstantItsValidityIs(t *testing.T) {
	for i := range 60 {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			l := open()
			s.every(hangRequest, renew)
			began := time.Now()
			e, err := l.Acquire(t.Context(), key)
			require.NoError(t, err)
			ctx := e.Context()
			time.Sleep(lease - lease/100 - 2*time.Millisecond - time.Since(began))
			if i%2 == 0 {
				require.ErrorIs(t, ctx.Err(), context.Canceled)
			} else {
				select {
				case <-ctx.Done():
				default:
					t.Error("the context lives on")
				}
			}
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
		})
	}
}
