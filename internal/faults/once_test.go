package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// A process is killed in the middle of its work.
func TestOnceCrash(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "waits for the leases of killed processes")
	t.Parallel()
	for _, c := range []struct {
		role  string
		opts  []lock.Option
		again bool
	}{
		{"once", nil, false},
		{"once", []lock.Option{lock.WithRerunAbandoned()}, true},
		{"commit", nil, false},
		{"commit-rerun", []lock.Option{lock.WithRerunAbandoned()}, false},
	} {
		t.Run(fmt.Sprintf("%s rerun=%v", c.role, len(c.opts) > 0), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l := locker(t, open(t, server.URL()), append(c.opts, lock.WithBudget(patient))...)
			cmd, out := startChild(t, c.role, server.URL())
			require.True(t, out.Scan())
			require.NoError(t, cmd.Process.Kill())
			_, _, err := l.Once(t.Context(), "order", []byte("1"), nil)
			require.ErrorIs(t, err, lock.ErrHeld)
			time.Sleep(killLease + time.Second)
			attempt := 0
			_, _, err = l.Once(t.Context(), "order", []byte("1"), func(ctx context.Context) ([]byte, error) {
				attempt = lock.Attempt(ctx)
				return nil, nil
			})
			if c.again {
				require.NoError(t, err)
				require.Equal(t, 2, attempt)
				return
			}
			require.Error(t, err)
			require.Zero(t, attempt, "ran again")
			_, _, err = l.Once(t.Context(), "order", []byte("2"), nil)
			require.ErrorIs(t, err, lock.ErrMismatch)
			// An operator frees it.
			keys := server.Keys(t)
			require.Len(t, keys, 1)
			server.Do(t, "DEL", keys[0])
			_, _, err = l.Once(t.Context(), "order", []byte("2"), func(context.Context) ([]byte, error) { return nil, nil })
			require.NoError(t, err)
		})
	}
}
