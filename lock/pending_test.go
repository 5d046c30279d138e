package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

const (
	meeting   = 64                    // callers that meet
	answersIn = 20 * time.Millisecond // of their store
)

// meet makes n callers run call at the same time, and returns their errors.
func meet(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errs
}

// requireEach checks that each of the errors matches want, or is nil if want is.
func requireEach(t *testing.T, want error, errs []error) {
	t.Helper()
	for _, err := range errs {
		require.ErrorIs(t, err, want)
	}
}

// asking is a call for meet: a request for the run of key.
func asking(l *lock.Locker, work func(ctx context.Context) ([]byte, error)) func(int) error {
	return func(int) error { _, _, err := l.Once(context.Background(), key, print1, work); return err }
}

// Callers that meet a pending claim share its outcome, and cost no further round trip.
func TestCallersThatMeetShareOneClaim(t *testing.T) {
	var f effect
	ask := func(fingerprint []byte) func(l *lock.Locker) error {
		return func(l *lock.Locker) error {
			receipt, replayed, err := l.Once(context.Background(), key, fingerprint, f.run("again"))
			if err == nil && (!replayed || string(receipt) != "answer") {
				return errors.New("not the first answer")
			}
			clear(receipt) // it is the caller's
			return err
		}
	}
	acquire := func(l *lock.Locker) error { _, err := l.Acquire(context.Background(), key); return err }
	answer := func(t *testing.T, _ *fault.Store, other *lock.Locker) {
		must.Run(t)(other.Once(t.Context(), key, print1, f.run("answer")))
	}
	for name, tt := range map[string]struct {
		opts   []lock.Option
		before func(t *testing.T, s *fault.Store, other *lock.Locker)
		call   func(l *lock.Locker) error
		want   error
	}{
		"repeats of an answered request":                  {before: answer, call: ask(print1)},
		"and they would wait":                             {opts: []lock.Option{lock.WithWait(time.Minute)}, before: answer, call: ask(print1)},
		"other requests under the key of an answered one": {before: answer, call: ask(print2), want: lock.ErrMismatch},
		"duplicates of what another process runs": {call: ask(print1), want: lock.ErrHeld, before: func(_ *testing.T, _ *fault.Store, other *lock.Locker) {
			startRun(other, func(context.Context) ([]byte, error) {
				time.Sleep(time.Second)
				return nil, nil
			})
		}},
		"repeats of a call with an unknown end": {call: ask(print1), want: lock.ErrAbandoned, before: func(t *testing.T, s *fault.Store, _ *lock.Locker) {
			abandoned(t, s)
		}},
		"submissions within a cool-down": {call: acquire, want: lock.ErrSettled, before: func(t *testing.T, _ *fault.Store, other *lock.Locker) {
			require.NoError(t, acquired(t, other, key).Settle(t.Context(), nil, time.Minute))
		}},
		"submissions while the store is full": {call: acquire, want: lock.ErrFull, before: func(t *testing.T, s *fault.Store, _ *lock.Locker) {
			s.Serve(memstore.New(memstore.WithLimits(1, 1<<20)))
			must.Entry(t)(s.Server().Claim(t.Context(), "another", lock.Claim{Token: "a", Lease: time.Hour}))
		}},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(tt.opts...)
			tt.before(t, s, open())
			s.Every(fault.Slow(answersIn), fault.Claim)
			claims, began := s.Count(fault.Claim), time.Now()
			requireEach(t, tt.want, meet(meeting, func(int) error { return tt.call(l) }))
			require.Equal(t, claims+1, s.Count(fault.Claim), "round trips")
			require.Equal(t, answersIn, time.Since(began))
		})
	}
}

// same-answer: a repeat that meets the claim of another request is judged by its own fingerprint. A claim
// that is only pending says nothing of whose key it is.
func TestCallersThatMeetAreJudgedEachByItsFingerprint(t *testing.T) {
	for _, opts := range [][]lock.Option{nil, {lock.WithWait(time.Minute)}} {
		bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			must.Run(t)(open().Once(t.Context(), key, print1, f.run("answer")))
			l := open(opts...)
			s.Every(fault.Slow(answersIn), fault.Claim)
			for i, err := range meet(meeting, func(i int) error {
				_, _, err := l.Once(context.Background(), key, [][]byte{print2, print1}[i%2], f.run("again"))
				return err
			}) {
				require.ErrorIs(t, err, []error{lock.ErrMismatch, nil}[i%2])
			}
			require.Equal(t, 2, s.Count(fault.Claim), "one of the first, and one")
		})
	}
}

// A claim that is granted refuses the callers that met it. A waiter stays in the queue.
func TestCallersThatMeetAClaimThatIsGranted(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		waits := l.With(lock.WithWait(time.Minute))
		s.Every(fault.Slow(answersIn), fault.Claim)
		var order []int
		var wg sync.WaitGroup
		run := func(l *lock.Locker, fingerprint []byte, i int) error {
			_, _, err := l.Once(context.Background(), key, fingerprint, func(context.Context) ([]byte, error) {
				order = append(order, i)
				time.Sleep(time.Second)
				return []byte("answer"), nil
			})
			return err
		}
		wg.Go(func() { assert.NoError(t, run(l, print1, 0)) })
		synctest.Wait()
		began := time.Now()
		for i := range 10 {
			wg.Go(func() {
				assert.ErrorIs(t, run(l, print1, i), lock.ErrHeld)
				assert.Equal(t, answersIn, time.Since(began))
			})
			wg.Go(func() {
				assert.ErrorIs(t, run(waits, print2, i), lock.ErrMismatch)
				assert.Equal(t, answersIn, time.Since(began))
			})
			wg.Go(func() { assert.NoError(t, run(waits, print1, i)) })
		}
		wg.Wait()
		require.Equal(t, []int{0}, order)
		require.Equal(t, 2, s.Count(fault.Claim), "the waiters share one replay")
	})
}

// More callers can wait for a pending claim than for a holder, because the claim is over soon.
func TestWaitersBeyondTheBoundMeetAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		must.Run(t)(open().Once(t.Context(), key, print1, f.run("answer")))
		l := open(lock.WithWait(time.Minute))
		s.Every(fault.Slow(answersIn), fault.Claim)
		requireEach(t, nil, meet(5*meeting, asking(l, f.run("again"))))
		require.Equal(t, 2, s.Count(fault.Claim))
	})
}

// A claimer that leaves says nothing of the key. The next one asks.
func TestCallersThatMeetOneThatLeaves(t *testing.T) {
	for name, claimer := range map[string]struct {
		fault fault.Func
		leave func(parent context.Context) (context.Context, context.CancelFunc)
	}{
		"its deadline is over": {fault.HangRequest, func(parent context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(parent, 2*answersIn)
		}},
		"its client has gone": {fault.HangRequest, func(parent context.Context) (context.Context, context.CancelFunc) {
			ctx, leave := context.WithCancel(parent)
			time.AfterFunc(2*answersIn, leave)
			return ctx, leave
		}},
		// That is a failure of its first send, which it repeats.
		"a hook panics under it": {func(context.Context, func() error) error { panic("a hook's") }, context.WithCancel},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			must.Run(t)(open().Once(t.Context(), key, print1, f.run("answer")))
			l := open()
			s.Next(fault.Claim, func(ctx context.Context, apply func() error) error {
				fault.Sleep(ctx, answersIn)
				return claimer.fault(ctx, apply)
			})
			s.Every(fault.Slow(answersIn), fault.Claim)
			ctx, leave := claimer.leave(t.Context())
			defer leave()
			go func() { _, _, _ = l.Once(ctx, key, print1, nil) }()
			synctest.Wait()
			requireEach(t, nil, meet(meeting, asking(l, f.run("again"))))
			require.Equal(t, 3, s.Count(fault.Claim), "of the first, of the one that left or failed, and one more")
		})
	}
}

// Who meets a claim that is not answered waits for its own budget, and no longer.
func TestCallersThatMeetSilence(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var seen events
		hasty := l.With(lock.WithBudget(budget/2), lock.WithObserver(seen.observe))
		s.Every(fault.HangRequest, fault.Claim)
		began := time.Now()
		go func() { _, _ = l.Acquire(context.Background(), key) }()
		synctest.Wait()
		var wg sync.WaitGroup
		for of, want := range map[*lock.Locker]time.Duration{l: budget, hasty: budget / 2} {
			for range 10 {
				wg.Go(func() {
					_, err := of.Acquire(context.Background(), key)
					assert.ErrorIs(t, err, lock.ErrUnavailable)
					assert.NotErrorIs(t, err, lock.ErrUnknown, "nothing was sent for it")
					assert.Equal(t, want, time.Since(began))
				})
			}
		}
		brief, leave := context.WithTimeout(t.Context(), budget/10)
		defer leave()
		require.ErrorIs(t, l.Do(brief, key, nil), context.DeadlineExceeded)
		require.Equal(t, budget/10, time.Since(began))
		wg.Wait()
		require.Equal(t, 10, seen.count(lock.EventUnavailable))
		require.Less(t, s.Count(fault.Claim), 4, "those of the first")
	})
}

// A waiter that has less time than a budget is refused by a holder when its time is over, even if
// the holder was a pending claim when the waiter came, and at its grant if its time is over by then.
func TestAShortWaitMeetsAClaim(t *testing.T) {
	for wait, took := range map[time.Duration]time.Duration{answersIn / 2: answersIn, 2 * answersIn: 2 * answersIn} {
		bubbleCase(t, wait.String(), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithWait(wait))
			s.Every(fault.Slow(answersIn), fault.Claim)
			go func() {
				_ = l.Do(context.Background(), key, func(context.Context) error { time.Sleep(time.Second); return nil })
			}()
			synctest.Wait()
			began := time.Now()
			requireHeld(t, l)
			require.Equal(t, took, time.Since(began))
			time.Sleep(2 * time.Second)

			s.Every(fault.Slow(3*answersIn), fault.Claim)
			require.NoError(t, acquired(t, l, key).Settle(t.Context(), nil, time.Minute))
			requireEach(t, lock.ErrSettled, meet(meeting, func(int) error { _, err := l.Acquire(t.Context(), key); return err }))
		})
	}
}

// A waiter left in the queue behind a claimer that leaves is notified of the next claimer's grant.
func TestQueueIsNotifiedOfTheNextGrant(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Next(fault.Claim, fault.HangRequest)
		ctx, leave := context.WithTimeout(t.Context(), answersIn)
		defer leave()
		go func() { _, _ = l.Acquire(ctx, key) }()
		synctest.Wait()
		began := time.Now()
		var refused atomic.Int32
		requireEach(t, nil, meet(meeting, func(int) error {
			e, err := l.Acquire(context.Background(), key)
			assert.Equal(t, answersIn, time.Since(began))
			if err == nil {
				time.Sleep(time.Second)
				err = e.Release(context.Background())
			} else if assert.ErrorIs(t, err, lock.ErrHeld) {
				refused.Add(1)
				err = nil
			}
			return err
		}))
		require.EqualValues(t, meeting-1, refused.Load())
	})
}
