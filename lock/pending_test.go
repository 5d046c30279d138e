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

// Callers that meet a pending claim of their key share its outcome, and none of
// them costs another round trip.
func TestCallersThatMeetShareOneClaim(t *testing.T) {
	var f effect
	asked := func(l *lock.Locker, fingerprint []byte) func(int) error {
		return func(int) error {
			_, _, err := l.Once(context.Background(), key, fingerprint, f.run("again"))
			return err
		}
	}
	acquire := func(l *lock.Locker) func(int) error {
		return func(int) error { _, err := l.Acquire(context.Background(), key); return err }
	}
	answered := func(t *testing.T, l *lock.Locker) {
		t.Helper()
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
	}
	for _, tt := range []struct {
		name   string
		opts   []lock.Option
		before func(t *testing.T, s *fault.Store, other *lock.Locker)
		call   func(l *lock.Locker) func(int) error
		want   error
	}{
		{
			name:   "repeats of an answered request",
			before: func(t *testing.T, _ *fault.Store, other *lock.Locker) { answered(t, other) },
			call: func(l *lock.Locker) func(int) error {
				return func(int) error {
					receipt, replayed, err := l.Once(context.Background(), key, print1, f.run("again"))
					if err == nil && (!replayed || string(receipt) != "answer") {
						return errors.New("not the first answer")
					}
					clear(receipt) // it is the caller's
					return err
				}
			},
		},
		{
			name:   "and they would wait",
			opts:   []lock.Option{lock.WithWait(time.Minute)},
			before: func(t *testing.T, _ *fault.Store, other *lock.Locker) { answered(t, other) },
			call:   func(l *lock.Locker) func(int) error { return asked(l, print1) },
		},
		{
			name:   "other requests under the key of an answered one",
			before: func(t *testing.T, _ *fault.Store, other *lock.Locker) { answered(t, other) },
			call:   func(l *lock.Locker) func(int) error { return asked(l, print2) },
			want:   lock.ErrMismatch,
		},
		{
			name: "duplicates of what another process runs",
			before: func(t *testing.T, _ *fault.Store, other *lock.Locker) {
				t.Helper()
				go func() {
					_, _, _ = other.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
						time.Sleep(time.Second)
						return nil, nil
					})
				}()
				synctest.Wait()
			},
			call: func(l *lock.Locker) func(int) error { return asked(l, print1) },
			want: lock.ErrHeld,
		},
		{
			name: "repeats of a call with an unknown end",
			before: func(t *testing.T, s *fault.Store, _ *lock.Locker) {
				t.Helper()
				crash(t, s, func(context.Context) {})
				s.Every(nil, fault.Settle, fault.Release, fault.Renew)
				time.Sleep(lease)
			},
			opts: []lock.Option{lock.WithKeep(keep)},
			call: func(l *lock.Locker) func(int) error { return asked(l, print1) },
			want: lock.ErrAbandoned,
		},
		{
			name: "submissions within a cool-down",
			before: func(t *testing.T, _ *fault.Store, other *lock.Locker) {
				t.Helper()
				e := acquired(t, other, key)
				require.NoError(t, e.Settle(t.Context(), nil, time.Minute))
			},
			call: acquire,
			want: lock.ErrSettled,
		},
		{
			name: "submissions while the store is full",
			before: func(t *testing.T, s *fault.Store, _ *lock.Locker) {
				t.Helper()
				s.Serve(memstore.New(memstore.WithLimits(1, 1<<20)))
				must.Entry(t)(s.Server().Claim(t.Context(), "another", lock.Claim{Token: "a", Lease: time.Hour}))
			},
			call: acquire,
			want: lock.ErrFull,
		},
	} {
		bubbleCase(t, tt.name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(tt.opts...)
			tt.before(t, s, open())
			s.Every(fault.Slow(answersIn), fault.Claim)
			claims, began := s.Count(fault.Claim), time.Now()
			for _, err := range meet(meeting, tt.call(l)) {
				require.ErrorIs(t, err, tt.want)
			}
			require.Equal(t, claims+1, s.Count(fault.Claim), "round trips")
			require.Equal(t, answersIn, time.Since(began))
		})
	}
}

// A repeat that meets the claim of another request is judged by its own
// fingerprint.
func TestCallersThatMeetAreJudgedEachByItsFingerprint(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			_, _, err := open().Once(t.Context(), key, print1, f.run("answer"))
			require.NoError(t, err)
			l := open()
			if wait > 0 {
				l = l.With(lock.WithWait(wait))
			}
			s.Every(fault.Slow(answersIn), fault.Claim)
			errs := meet(meeting, func(i int) error {
				fingerprint := print1
				if i%2 == 0 {
					fingerprint = print2
				}
				_, _, err := l.Once(context.Background(), key, fingerprint, f.run("again"))
				return err
			})
			for i, err := range errs {
				want := error(nil)
				if i%2 == 0 {
					want = lock.ErrMismatch
				}
				require.ErrorIs(t, err, want)
			}
			require.Equal(t, 2, s.Count(fault.Claim), "one of the first, and one")
		})
	}
}

// A claim that is granted at once refuses the callers that met it; a waiter stays
// in the queue.
func TestCallersThatMeetAClaimThatIsGranted(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
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
		_, _, err := open().Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		l := open(lock.WithWait(time.Minute))
		s.Every(fault.Slow(answersIn), fault.Claim)
		for _, err := range meet(5*meeting, func(int) error {
			_, _, err := l.Once(context.Background(), key, print1, f.run("again"))
			return err
		}) {
			require.NoError(t, err)
		}
		require.Equal(t, 2, s.Count(fault.Claim))
		// The same crowd before a holder is bounded.
		s.Free(t, record)
		held := 0
		for _, err := range meet(5*meeting, func(int) error {
			_, _, err := l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
				time.Sleep(time.Second)
				return []byte("answer"), nil
			})
			return err
		}) {
			if err != nil {
				require.ErrorIs(t, err, lock.ErrHeld)
				held++
			}
		}
		require.Equal(t, 4*meeting-1, held)
	})
}

// A claimer that leaves says nothing of the key. The next one asks.
func TestCallersThatMeetOneThatLeaves(t *testing.T) {
	type meetingWith func(ctx context.Context, l *lock.Locker)
	asks := func(ctx context.Context, l *lock.Locker) { _, _, _ = l.Once(ctx, key, print1, nil) }
	byDeadline := context.WithTimeout
	for name, leaves := range map[string]struct {
		first meetingWith
		fault fault.Func
		by    func(parent context.Context, after time.Duration) (context.Context, context.CancelFunc)
		after time.Duration
	}{
		"its deadline is over": {asks, fault.HangRequest, byDeadline, 2 * answersIn},
		"its client has gone": {asks, fault.HangRequest, func(parent context.Context, after time.Duration) (context.Context, context.CancelFunc) {
			ctx, leave := context.WithCancel(parent)
			time.AfterFunc(after, leave)
			return ctx, leave
		}, 2 * answersIn},
		// That is a failure of its first send, which it repeats.
		"a hook panics under it": {asks, func(context.Context, func() error) error { panic("a hook's") }, byDeadline, time.Minute},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			_, _, err := open().Once(t.Context(), key, print1, f.run("answer"))
			require.NoError(t, err)
			l := open()
			s.Next(fault.Claim, func(ctx context.Context, apply func() error) error {
				fault.Sleep(ctx, answersIn)
				return leaves.fault(ctx, apply)
			})
			s.Every(fault.Slow(answersIn), fault.Claim)
			ctx, leave := leaves.by(t.Context(), leaves.after)
			defer leave()
			go onItsOwn(func() { leaves.first(ctx, l) })
			synctest.Wait()
			for _, err := range meet(meeting, func(int) error {
				_, _, err := l.Once(context.Background(), key, print1, f.run("again"))
				return err
			}) {
				require.NoError(t, err)
			}
			require.Equal(t, 3, s.Count(fault.Claim), "of the first, of the one that left or failed, and one more")
		})
	}
}

// Who meets a claim that is not answered waits for its own budget, and no longer.
func TestCallersThatMeetSilence(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open()
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
		_, err := l.Acquire(brief, key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, budget/10, time.Since(began))
		wg.Wait()
		require.Equal(t, 10, seen.count(lock.EventUnavailable))
		require.Less(t, s.Count(fault.Claim), 4, "those of the first")
	})
}

// A waiter that has less time than a budget is refused by a holder when its
// time is over, even if the holder was a pending claim when the waiter came.
func TestAShortWaitMeetsAClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(2 * answersIn))
		s.Every(fault.Slow(answersIn), fault.Claim)
		go func() {
			_ = l.Do(context.Background(), key, func(context.Context) error { time.Sleep(time.Second); return nil })
		}()
		synctest.Wait()
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 2*answersIn, time.Since(began))
		time.Sleep(2 * time.Second)

		s.Every(fault.Slow(3*answersIn), fault.Claim)
		e := acquired(t, l, key)
		require.NoError(t, e.Settle(t.Context(), nil, time.Minute))
		for _, err := range meet(meeting, func(int) error { _, err := l.Acquire(t.Context(), key); return err }) {
			require.ErrorIs(t, err, lock.ErrSettled, "a claim is waited for up to the budget")
		}
	})
}

// same-answer: a claim that is only pending says nothing of whose key it is.
func TestMismatchByAPendingClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		s.Every(fault.Slow(50*time.Millisecond), fault.Claim)
		wrong := make(chan error, 1)
		go func() { _, _, err := l.Once(context.Background(), key, print2, f.run("wrong")); wrong <- err }()
		synctest.Wait()
		_, _, err = l.Once(t.Context(), key, print1, f.run("again")) // the owner of the key
		require.ErrorIs(t, <-wrong, lock.ErrMismatch)
		require.NotErrorIs(t, err, lock.ErrMismatch, "422 for the request whose receipt is there")
	})
}

// A waiter left in the queue behind a claimer that leaves is notified of the next claimer's grant.
func TestQueueIsNotifiedOfTheNextGrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, fault.HangRequest)
		ctx, leave := context.WithTimeout(t.Context(), answersIn)
		defer leave()
		go func() { _, _ = l.Acquire(ctx, key) }()
		synctest.Wait()
		began := time.Now()
		var refused atomic.Int32
		for _, err := range meet(meeting, func(int) error {
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
		}) {
			require.NoError(t, err)
		}
		require.EqualValues(t, meeting-1, refused.Load())
	})
}
