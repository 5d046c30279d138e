package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// Work is never run again after Commit.
func TestNothingFreesTheKeyAfterCommit(t *testing.T) {
	for name, end := range map[string]func() ([]byte, error){
		"error":  func() ([]byte, error) { return nil, errors.New("mine") },
		"panic":  func() ([]byte, error) { panic("mine") },
		"goexit": func() ([]byte, error) { runtime.Goexit(); return nil, nil },
	} {
		for mode, opts := range map[string][]lock.Option{"refuse": nil, "rerun": {lock.WithRerunAbandoned()}} {
			bubbleCase(t, name+"/"+mode, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
				var f effect
				l := open(append(opts, lock.WithKeep(keep))...)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
						f.runs.Add(1)
						if err := lock.Commit(ctx); err != nil {
							t.Error(err)
						}
						return end()
					})
				}()
				<-done
				receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("again"))
				require.NoError(t, err)
				require.True(t, replayed)
				require.Empty(t, receipt)
				time.Sleep(keep - time.Minute)
				_, replayed, _ = l.Once(t.Context(), key, print1, f.run("again"))
				require.True(t, replayed)
				require.EqualValues(t, 1, f.runs.Load())
			})
		}
	}
}

// once: Commit promised that nothing frees the key, after the key was freed. An
// http.TimeoutHandler inside Idempotent causes this: its handler goes on.
func TestCommitAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		for _, l := range []*lock.Locker{open(lock.WithKeep(keep)), open(lock.WithKeep(keep), lock.WithRerunAbandoned())} {
			var left context.Context
			var run *lock.Run
			guarded(t.Context(), t, l, func(ctx context.Context, r *lock.Run) ([]byte, error) {
				left, run = context.WithoutCancel(ctx), r
				return nil, errors.New("503: it took too long")
			})
			require.Equal(t, lock.Free, s.State(t, record).State)
			require.ErrorIs(t, lock.Commit(left), lock.ErrLost)
			_, _, err := run.Settle(left, []byte("tombstone"))
			require.ErrorIs(t, err, lock.ErrLost, "nothing was recorded")
		}
	})
}

// once: as above, with the commit while the release is in flight.
func TestCommitDuringTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithKeep(keep))
		s.Every(fault.Slow(100*time.Millisecond), fault.Release)
		committed := make(chan error, 1)
		_, _, _ = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.AfterFunc(50*time.Millisecond, func() { committed <- lock.Commit(ctx) })
			return nil, errors.New("503: it took too long")
		})
		if <-committed == nil {
			require.NotEqual(t, lock.Free, s.State(t, record).State, "Commit returned nil and the key was freed")
		}
	})
}

// Waiting after Commit goes on: an early answer without the receipt would be
// given to every caller that double-clicked.
func TestCommitKeepsWaitersWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(lock.WithRerunAbandoned()), open(lock.WithRerunAbandoned(), lock.WithWait(time.Minute))
		go func() {
			_, _, _ = here.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
				if err := lock.Commit(ctx); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * lease)
				return []byte("answer"), nil
			})
		}()
		synctest.Wait()
		receipt, replayed, err := there.Once(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "answer", string(receipt))
	})
}

func TestSettleEarly(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		guarded(t.Context(), t, l, func(ctx context.Context, r *lock.Run) ([]byte, error) {
			for _, receipt := range []string{"tombstone", "again"} {
				_, replayed, err := r.Settle(ctx, []byte(receipt))
				require.NoError(t, err)
				require.False(t, replayed)
			}
			return nil, errors.New("and then it failed")
		})
		receipt, replayed, err := l.Once(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "tombstone", string(receipt))
	})
}

// guarded does work under the key as a guard does: it may use its run.
func guarded(ctx context.Context, t *testing.T, l *lock.Locker, work func(ctx context.Context, r *lock.Run) ([]byte, error)) {
	t.Helper()
	run, _, err := l.Begin(ctx, key, print1, nil)
	if !assert.NoError(t, err) || !assert.NotNil(t, run) {
		return
	}
	defer func() { _, _, _ = run.Fail(ctx, errMine) }()
	receipt, err := work(run.Context(), run)
	if err != nil {
		return
	}
	_, _, err = run.Settle(ctx, receipt)
	assert.NoError(t, err)
}
