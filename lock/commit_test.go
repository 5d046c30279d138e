package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
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
				require.Empty(t, must.Replay(t)(l.Once(t.Context(), key, print1, f.run("again"))))
				time.Sleep(keep - time.Minute)
				_, replayed, _ := l.Once(t.Context(), key, print1, f.run("again"))
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
		require.Equal(t, "answer", must.Replay(t)(there.Once(t.Context(), key, print1, nil)))
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
		require.Equal(t, "tombstone", must.Replay(t)(l.Once(t.Context(), key, print1, nil)))
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

// TestPossibleEffectKeepsTheKey: after a call that may have had an effect, the function does not
// run again, in whatever way it ended. A call that is known to have had no effect does not prevent
// another run.
func TestPossibleEffectKeepsTheKey(t *testing.T) {
	unknown := []byte("unknown")
	steps := map[string]struct {
		calls func(t *testing.T, ctx context.Context, r *lock.Run)
		frees bool
	}{
		"one that may have had one": {func(t *testing.T, ctx context.Context, r *lock.Run) {
			t.Helper()
			_, err := r.NotePossibleEffect(ctx, unknown)
			require.NoError(t, err)
		}, false},
		"one that had none": {func(t *testing.T, ctx context.Context, r *lock.Run) {
			t.Helper()
			none, err := r.NotePossibleEffect(ctx, unknown)
			require.NoError(t, err)
			none()
		}, true},
		"one of two that may have had one": {func(t *testing.T, ctx context.Context, r *lock.Run) {
			t.Helper()
			_, err := r.NotePossibleEffect(ctx, unknown)
			require.NoError(t, err)
			none, err := r.NotePossibleEffect(ctx, unknown)
			require.NoError(t, err)
			none()
		}, false},
	}
	ends := map[string]func() ([]byte, error){
		"error":  func() ([]byte, error) { return nil, errors.New("mine") },
		"panic":  func() ([]byte, error) { panic("mine") },
		"goexit": func() ([]byte, error) { runtime.Goexit(); return nil, nil },
	}
	for name, step := range steps {
		for endName, end := range ends {
			for mode, opts := range map[string][]lock.Option{"refuse": nil, "rerun": {lock.WithRerunAbandoned()}} {
				bubbleCase(t, name+"/"+endName+"/"+mode, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
					var f effect
					var out bytes.Buffer
					l := open(append(opts, lock.WithKeep(keep), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))...)
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						guarded(context.Background(), t, l, func(ctx context.Context, r *lock.Run) ([]byte, error) {
							f.runs.Add(1)
							step.calls(t, ctx, r)
							return end()
						})
					}()
					<-done
					receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("again"))
					require.NoError(t, err)
					require.Equal(t, !step.frees, replayed)
					if step.frees {
						require.EqualValues(t, 2, f.runs.Load())
						require.Empty(t, out.String())
						return
					}
					require.Equal(t, unknown, receipt)
					require.EqualValues(t, 1, f.runs.Load())
					require.Contains(t, out.String(), "Check whether the request had an effect")
					require.Contains(t, out.String(), `"console":"?key=once:`)
				})
			}
		}
	}
}
