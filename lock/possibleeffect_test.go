package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

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
