package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// requireUnprotected checks a lease that protects nothing.
func requireUnprotected(t *testing.T, e *lock.Lease, err error) {
	t.Helper()
	require.NoError(t, err)
	require.Equal(t, t.Context(), e.Context())
	_, ok := lock.FromContext(e.Context())
	require.False(t, ok)
	_, ok = e.Fence()
	require.False(t, ok)
	require.ErrorIs(t, e.Extend(t.Context()), lock.ErrUnavailable)
	_, err = e.HandOver(t.Context(), patience)
	require.ErrorIs(t, err, lock.ErrUnavailable)
}

func TestFailOpenKeepsTheKeyShutInThisProcess(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		s.Every(fault.HangReply, fault.Claim)
		e, err := l.With(lock.WithFailOpen()).Acquire(t.Context(), key)
		requireUnprotected(t, e, err)
		require.Equal(t, 1, seen.count(lock.EventUnknown))
		require.Equal(t, 1, seen.count(lock.EventBypassed))

		// The token counts as granted while the work runs.
		time.Sleep(lease / 2)
		s.Every(nil, fault.Claim)
		require.Equal(t, lock.Held, s.State(t, key).State, "not cleaned up under the work")
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrHeld)
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, e.Release(t.Context()))
		synctest.Wait()
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

// A release has no answer yet, and work that runs without the store has taken the key. The
// lease refuses no later caller of its process: its entry has no holder.
func TestAReleaseIsDeadAfterFailOpenTookItsKey(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		for range 10 {
			e := acquired(t, l, key)
			s.Every(fault.HangRequest, fault.Claim, fault.Renew, fault.Release)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
			unprotected, err := l.Acquire(t.Context(), key)
			requireUnprotected(t, unprotected, err)
			require.NoError(t, unprotected.Release(t.Context()))
			require.Equal(t, lock.Held, s.State(t, key).State)
			s.Every(nil)
			require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
				time.Sleep(lease) // the release of before is repeated meanwhile
				return ctx.Err()
			}))
		}
	}, lock.WithFailOpen())
}

func TestFailOpenOfHungWorkEndsWithTheLease(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.Refuse, fault.Claim)
		hung, err := l.With(lock.WithFailOpen()).Acquire(t.Context(), key)
		requireUnprotected(t, hung, err)
		s.Every(nil, fault.Claim)
		time.Sleep(lease)
		synctest.Wait()
		e := acquired(t, l, key)
		require.NoError(t, hung.Release(t.Context()))
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrHeld, "the end of the old work does not free the key of the new one")
		require.NoError(t, e.Release(t.Context()))
	})
}

// fail-open: duplicates of one process ran at the same time if they met behind an end that is unanswered,
// also if the queue behind it is full.
func TestFailOpenBehindAnUnansweredRelease(t *testing.T) {
	for _, callers := range []int{2, 100} {
		bubbleCase(t, fmt.Sprint(callers), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithLease(30 * time.Second))
			e := acquired(t, l, key)
			s.Every(fault.HangRequest, fault.Claim, fault.Renew, fault.Release)
			require.Error(t, e.Release(t.Context()))
			var atOnce sideBySide
			for _, err := range meet(callers, func(int) error {
				return l.With(lock.WithFailOpen()).Do(context.Background(), key, atOnce.work)
			}) {
				if err != nil {
					require.ErrorIs(t, err, lock.ErrHeld)
				}
			}
			require.Equal(t, 1, atOnce.most, "duplicates of one process ran at the same time, or none did")
			s.Every(nil, fault.Claim, fault.Renew, fault.Release)
		})
	}
}

// fail-open: a caller that left is no outage.
func TestFailOpenForACallerThatLeft(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe), lock.WithFailOpen())
		s.Every(fault.Slow(100*time.Millisecond), fault.Claim)
		ctx := within(t, 50*time.Millisecond)
		_, err := l.Acquire(ctx, key)
		require.Error(t, err)
		require.Zero(t, seen.count(lock.EventBypassed))
	})
}

// Work that would run unprotected is refused while other such work runs, and is
// not kept from running by a claim that failed and is not to run.
func TestCallersThatMeetAndFailOpen(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.HangRequest, fault.Claim)
		strict := make(chan error, 1)
		go func() { strict <- l.Do(context.Background(), key, nil) }()
		time.Sleep(budget / 2)
		var unprotected sideBySide
		for _, err := range meet(10, func(int) error {
			return l.With(lock.WithFailOpen()).Do(context.Background(), key, unprotected.work)
		}) {
			if err != nil {
				require.ErrorIs(t, err, lock.ErrHeld)
			}
		}
		require.ErrorIs(t, <-strict, lock.ErrUnavailable)
		require.Equal(t, 1, unprotected.runs)
	})
}

func TestOnceThatFailsOpenLeavesNothing(t *testing.T) {
	ends := maps.Clone(failures)
	ends["receipt"] = func() ([]byte, error) { return []byte("answer"), nil }
	for name, end := range ends {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithFailOpen())
			s.Every(fault.Refuse, fault.Claim)
			onItsOwn(func() {
				receipt, replayed, err := l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
					assert.Zero(t, lock.Attempt(ctx))
					assert.Error(t, lock.Commit(ctx))
					_, _, err := l.Once(ctx, key, print1, nil)
					assert.ErrorIs(t, err, lock.ErrHeld)
					return end()
				})
				assert.False(t, replayed)
				assert.Equal(t, name == "error", errors.Is(err, errMine))
				assert.Equal(t, name == "receipt", string(receipt) == "answer")
			})
			require.Zero(t, l.Stats().Active)
			require.Zero(t, s.Count(fault.Settle)+s.Count(fault.Release))
			s.Every(nil, fault.Claim)
			must.Run(t)(l.Once(t.Context(), key, print1, (&effect{}).run("again")))
		})
	}
}

var errMine = errors.New("mine")

func TestASettleOfUnprotectedWorkLeavesNothing(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.Refuse, fault.Claim)
		e, err := l.Acquire(t.Context(), key)
		requireUnprotected(t, e, err)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnavailable)
		require.NoError(t, e.Settle(t.Context(), nil, time.Hour))
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		require.Zero(t, s.Count(fault.Settle)+s.Count(fault.Release)+s.Count(fault.Renew))
		s.Every(nil, fault.Claim)
		require.NoError(t, l.Do(t.Context(), key, nothing))
	}, lock.WithFailOpen(), lock.WithFencing())
}

// Work may also run unprotected if the store has no room for its claim. It may not if the store does
// not support the claim, or the Locker is closed.
func TestWhatFailsOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		runs bool
	}{
		"not applied": {lock.ErrNotApplied, true},
		"unknown":     {errors.New("reply lost"), true},
		"denied":      {lock.ErrDenied, true},
		"full":        {lock.ErrFull, true},
		"unsupported": {fmt.Errorf("%w: %w", lock.ErrNotApplied, errors.ErrUnsupported), false},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Every(func(context.Context, func() error) error { return tt.err }, fault.Claim)
			l, ran := open(lock.WithFailOpen()), false
			err := l.Do(t.Context(), key, func(context.Context) error { ran = true; return nil })
			require.Equal(t, tt.runs, ran)
			require.Equal(t, tt.runs, err == nil)
			require.NoError(t, l.Close(t.Context()))
			require.ErrorIs(t, l.Do(t.Context(), key, nothing), lock.ErrClosed)
		})
	}
}

func TestUnprotectedWorkCanBeDetached(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.Refuse, fault.Claim)
		for ends, l := range map[error]*lock.Locker{context.Canceled: l, nil: l.With(lock.WithDetached())} {
			ctx, cancel := context.WithCancel(t.Context())
			require.Equal(t, ends, l.Do(ctx, key, func(ctx context.Context) error {
				cancel()
				return ctx.Err()
			}))
		}
	}, lock.WithFailOpen())
}

// Work that can run without the store waits for a claim whose work cannot. After any such wait it
// asks for the key itself, so that it does not run at the same time as other work of this process.
func TestFailOpenAfterALongWaitForAClaimThatFails(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		strict := make(chan error, 1)
		go func() { strict <- l.With(lock.WithWait(2*lease)).Do(context.Background(), key, nothing) }()
		synctest.Wait()
		time.AfterFunc(lease, func() {
			s.Every(fault.HangRequest, fault.Claim)
			_ = e.Release(context.Background())
		})
		var atOnce sideBySide
		requireEach(t, nil, meet(10, func(int) error { return l.With(lock.WithFailOpen()).Do(context.Background(), key, atOnce.work) }))
		require.ErrorIs(t, <-strict, lock.ErrUnavailable)
		require.Equal(t, []int{10, 1}, []int{atOnce.runs, atOnce.most})
	}, lock.WithWait(time.Minute))
}

// sideBySide is work that takes a second, and how much of it ran at one time.
type sideBySide struct {
	mu                  sync.Mutex
	runs, running, most int
}

func (w *sideBySide) work(context.Context) error {
	w.mu.Lock()
	w.runs++
	w.running++
	w.most = max(w.most, w.running)
	w.mu.Unlock()
	time.Sleep(time.Second)
	w.mu.Lock()
	w.running--
	w.mu.Unlock()
	return nil
}

// Callers wait for a holder in another process, and the store fails. None of them runs unprotected: not
// the first, which polls, and not those that get their turn after it.
func TestWaitersDoNotFailOpenBesideAHolderElsewhere(t *testing.T) {
	for _, of := range []string{"a key", "a permit"} {
		bubbleCase(t, of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			do, l := contenders[of], open(lock.WithFailOpen(), lock.WithWait(lease))
			free := heldElsewhere(t, open)
			var ran sideBySide
			time.AfterFunc(lease/4, func() { s.Every(fault.Refuse, fault.Claim) })
			requireEach(t, lock.ErrHeld, meet(3, func(int) error { return do(context.Background(), l, ran.work) }))
			require.Zero(t, ran.runs)
			free() // and a caller that has not met it is not refused
			require.NoError(t, do(context.Background(), l, ran.work))
			require.Equal(t, 1, ran.runs)
		})
	}
}

// Repeats that wait for an unprotected run are refused at its end, although it leaves no receipt.
func TestRepeatsOfAnUnprotectedRunDoNotRun(t *testing.T) {
	for name, end := range map[string]func() ([]byte, error){
		"receipt": func() ([]byte, error) { return []byte("answer"), nil }, "error": failures["error"], "goexit": failures["goexit"],
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithFailOpen(), lock.WithWait(lease))
			s.Every(fault.HangRequest, fault.Claim)
			runs := 0
			work := func(context.Context) ([]byte, error) { runs++; time.Sleep(lease / 2); return end() }
			go func() { _, _, _ = l.Once(context.Background(), key, print1, work) }()
			synctest.Wait()
			for i, err := range meet(5, func(i int) error {
				time.Sleep(time.Duration(i) * budget / 2) // some before it runs, some after
				_, replayed, err := l.Once(context.Background(), key, [][]byte{print1, print2}[i/4], work)
				assert.False(t, replayed)
				return err
			}) {
				require.ErrorIs(t, err, []error{lock.ErrHeld, lock.ErrMismatch}[i/4])
			}
			require.Equal(t, 1, runs)
		})
	}
}

// bounded: a caller that fails open waits behind one that polls for a holder elsewhere, and the store falls
// silent. When its time was over, it took the silence for an outage, and entered again and again.
func TestFailOpenBehindAPollWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		holder := acquired(t, open(), key)
		l := open(lock.WithWait(3 * lease))
		var all sync.WaitGroup
		all.Go(func() {
			if e, err := l.Acquire(t.Context(), key); err == nil {
				assert.NoError(t, e.Release(t.Context()))
			}
		})
		time.Sleep(budget)
		s.Every(fault.HangRequest, fault.Claim)
		time.Sleep(2 * budget)
		began := time.Now()
		require.ErrorIs(t, l.With(lock.WithFailOpen(), lock.WithWait(budget)).Do(t.Context(), key, nil), lock.ErrHeld)
		require.LessOrEqual(t, time.Since(began), 2*budget)
		s.Every(nil)
		require.NoError(t, holder.Release(t.Context()))
		all.Wait()
	})
}
