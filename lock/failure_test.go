package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

const crowd = 60 // calls that wait for one

var errCard = errors.New("the card was charged, and the answer lost")

// Callers that have waited for a run that fails get its failure: they do not
// repeat it one after the other. A later call runs.
func TestAWaitingCrowdDoesNotRepeatAFailure(t *testing.T) {
	for _, tt := range []struct {
		name string
		fn   func(ctx context.Context) ([]byte, error)
		want error  // of the callers that have waited; nil: the receipt
		says string // or its text
		runs int64
	}{
		{name: "an error", fn: func(context.Context) ([]byte, error) { return nil, errCard }, want: errCard, runs: 1},
		{
			name: "a refusal further in", want: lock.ErrHeld, runs: 1,
			fn: func(context.Context) ([]byte, error) { return nil, &lock.RefusedError{Reason: lock.ErrHeld} },
		},
		{name: "a panic", fn: func(context.Context) ([]byte, error) { panic("secret") }, says: "panicked", runs: 1},
		{name: "an exit", fn: func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil }, says: "ended its goroutine", runs: 1},
		{
			name: "after Commit", runs: 1,
			fn: func(ctx context.Context) ([]byte, error) { return nil, errors.Join(errCard, lock.Commit(ctx)) },
		},
	} {
		bubbleCase(t, tt.name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var runs atomic.Int64
			var seen events
			l := open(lock.WithWait(time.Minute), lock.WithObserver(seen.observe))
			run := func(fingerprint []byte) (receipt []byte, replayed bool, err error) {
				return l.Once(context.Background(), key, fingerprint, func(ctx context.Context) ([]byte, error) {
					runs.Add(1)
					time.Sleep(time.Second)
					return tt.fn(ctx)
				})
			}
			go onItsOwn(func() { _, _, _ = run(print1) })
			synctest.Wait()
			began := time.Now()
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() {
					_, replayed, err := run(print1)
					assert.True(t, replayed, "it has run nothing")
					if tt.says == "" {
						assert.ErrorIs(t, err, tt.want)
					} else {
						assert.ErrorContains(t, err, tt.says)
						assert.NotContains(t, err.Error(), "secret")
					}
					assert.Equal(t, time.Second, time.Since(began))
				})
			}
			_, _, err := run(print2)
			require.ErrorIs(t, err, lock.ErrMismatch)
			wg.Wait()
			require.Equal(t, tt.runs, runs.Load(), "effects")
			synctest.Wait()
			if tt.want == nil && tt.says == "" {
				require.Equal(t, lock.Settled, s.State(t, record).State, "a committed failure leaves a receipt")
				return
			}
			require.Equal(t, crowd+1, seen.count(lock.EventRefused))
			onItsOwn(func() { _, _, _ = run(print1) })
			require.Equal(t, tt.runs+1, runs.Load(), "a later call runs")
		})
	}
}

// The failure is shared whether or not the release after it is answered.
func TestAFailureIsSharedBeforeItsKeyIsFree(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Minute))
		s.Every(fault.HangRequest, fault.Release)
		began := time.Now()
		go func() {
			_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
				time.Sleep(time.Second)
				return nil, errCard
			})
		}()
		synctest.Wait()
		for _, err := range meet(crowd, func(int) error { _, _, err := l.Once(t.Context(), key, print1, nil); return err }) {
			require.ErrorIs(t, err, errCard)
		}
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A run that ended because its own caller left decides nothing for the other callers.
func TestAFailureOfACallerThatLeftIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithWait(time.Minute))
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		go func() {
			_, _, _ = l.Once(ctx, key, print1, func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}()
		synctest.Wait()
		for _, err := range meet(crowd, func(int) error {
			receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
			assert.Equal(t, "answer", string(receipt))
			return err
		}) {
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, f.runs.Load())
	})
}

// The failure of a run that has lost its key, for example to an operator,
// concerns this run only. The run that now has the key goes on.
func TestAFailureAfterALossIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithWait(time.Minute))
		first := make(chan error, 1)
		go func() {
			_, _, err := l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				return nil, errCard
			})
			first <- err
		}()
		synctest.Wait()
		s.Free(t, record)
		for _, err := range meet(crowd, func(int) error {
			_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
			return err
		}) {
			require.NoError(t, err)
		}
		err := <-first
		require.ErrorIs(t, err, errCard)
		require.ErrorIs(t, err, lock.ErrLost)
		require.EqualValues(t, 1, f.runs.Load())
	})
}

// Waiters of a lock wait for their turn: work that fails does not end the waiters behind it.
func TestALockDoesNotShareFailures(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var runs atomic.Int64
		l := open(lock.WithWait(time.Hour))
		for _, err := range meet(crowd, func(int) error {
			return l.Do(t.Context(), key, func(context.Context) error {
				runs.Add(1)
				time.Sleep(time.Second)
				return errCard
			})
		}) {
			require.ErrorIs(t, err, errCard)
		}
		require.EqualValues(t, crowd, runs.Load())
	})
}

// The failure of a run that has lost its lease may be that loss. It is not shared, in
// the moment before the key is given up either: the run is the first to see that its
// lease is over, and fails before the rest of the loss is done.
func TestAFailureAfterALossIsNotShared(t *testing.T) {
	for range 30 {
		bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			l := open(lock.WithWait(time.Minute), lock.WithRerunAbandoned())
			s.Every(fault.HangRequest, fault.Renew)
			began := time.Now()
			go func() {
				_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
					time.Sleep(validity - time.Since(began))
					return nil, errors.Join(errCard, ctx.Err())
				})
			}()
			synctest.Wait()
			receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
			require.NoError(t, err)
			require.Equal(t, "answer", string(receipt))
		})
	}
}
