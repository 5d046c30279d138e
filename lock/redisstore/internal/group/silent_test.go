package group_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// TestSilenceIsNoOverload: a refusal is of the class silent once the server has answered nothing
// for a tenth of a second, also if each of its batches was given up sooner, and no longer once
// it answers.
func TestSilenceIsNoOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		g := bounded(1, 1, 1, false, func(_ context.Context, names []string, reply func(string)) error {
			time.Sleep(10 * time.Millisecond)
			if silent.Load() {
				return errSilent
			}
			for _, n := range names {
				reply(n)
			}
			return nil
		})
		// One command is out and one is queued, so that a third is refused.
		refused := func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for _, name := range []string{"out", "queued"} {
				go func() { _ = do(ctx, g, name, false) }()
				synctest.Wait()
			}
			err := do(ctx, g, "refused", false)
			time.Sleep(25 * time.Millisecond) // both have ended
			synctest.Wait()
			require.Zero(t, out(g))
			require.Zero(t, queued(g))
			return failure.ClassOf(err)
		}
		require.Equal(t, "queue", refused())
		silent.Store(true)
		for range 5 { // the fifth at a tenth of a second, sharp
			require.Equal(t, "queue", refused())
		}
		for range 4 {
			require.Equal(t, "silent", refused())
		}
		silent.Store(false)
		require.Equal(t, "silent", refused(), "it is asked, and has not answered yet")
		require.Equal(t, "queue", refused())
	})
}

// TestSilenceOutlivesItsEnd: a claim that has waited while the server was silent is refused for the
// silence, even if the server has answered a moment before.
func TestSilenceOutlivesItsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		takes time.Duration
		want  string
	}{
		"a silent server": {990 * time.Millisecond, "silent"},
		"a slow server":   {95 * time.Millisecond, "overload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(1, 1, false, func(_ context.Context, names []string, reply func(string)) error {
					time.Sleep(tt.takes)
					reply(names[0])
					return nil
				})
				go func() { _ = do(t.Context(), g, "out", false) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), tt.takes+100*time.Microsecond)
				defer cancel()
				requireNotApplied(t, do(ctx, g, "queued", true), tt.want)
				synctest.Wait()
			})
		})
	}
}
