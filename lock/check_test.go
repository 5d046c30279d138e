package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A server whose policy is changed, while it is in use, to a policy that evicts locks is reported
// once. It is reported once more when the policy is right again.
func TestAPolicySwitchedWhileItRunsIsReported(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb")
	store, err := redisstore.Open(t.Context(), server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	var b logbook
	l := lockerOver(t, store, b.option(), lock.WithCheckEvery(20*time.Millisecond))
	reports := func(class string) func() bool {
		return func() bool {
			require.NoError(t, l.Do(t.Context(), key, nothing))
			return l.Stats().Trouble == class
		}
	}
	use := func() {
		for range 20 {
			require.NoError(t, l.Do(t.Context(), key, nothing))
			time.Sleep(5 * time.Millisecond)
		}
	}
	use()
	require.Empty(t, strings.Join(b.lines(), ""))

	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	require.Eventually(t, reports("EVICTION"), 10*time.Second, 10*time.Millisecond)
	use()
	require.Len(t, b.lines(), 1)
	for _, text := range []string{"level=ERROR", "the store failed its check", "class=EVICTION", "maxmemory-policy allkeys-lru", "set maxmemory-policy noeviction"} {
		require.Contains(t, b.lines()[0], text)
	}

	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	require.Eventually(t, reports(""), 10*time.Second, 10*time.Millisecond)
	require.Len(t, b.lines(), 2)
	require.Contains(t, b.lines()[1], "level=INFO")
	require.Contains(t, b.lines()[1], "has passed its check again")
}

// checkedStore is a store that can be checked.
type checkedStore struct {
	lock.Store

	checks atomic.Int64
	check  func(ctx context.Context, nth int64) error
}

func (s *checkedStore) Describe() lock.Description {
	about := lock.Describe(s.Store)
	about.Check = func(ctx context.Context) error { return s.check(ctx, s.checks.Add(1)) }
	return about
}

// A store in use is checked once a minute, for any number of claims. A store that is not in use is
// not checked.
func TestAStoreInUseIsCheckedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &checkedStore{Store: fault.New(), check: func(context.Context, int64) error { return nil }}
		l := lock.New(s, lock.WithLogger(quiet))
		for range 300 {
			require.NoError(t, l.Do(t.Context(), key, nothing))
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 4, s.checks.Load(), "in five minutes, the first of which begins with a check of the user's")
		time.Sleep(time.Hour)
		require.EqualValues(t, 4, s.checks.Load())
		require.NoError(t, l.Close(t.Context()))
	})
}

// A check that hangs is not repeated, holds up no claim, and ends with Close; a panic is a failure
// of the check.
func TestChecksThatHangOrPanic(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		check func(ctx context.Context, nth int64) error
		want  string
	}{
		"hangs": {func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return fmt.Errorf("checking: %w", ctx.Err())
		}, ""},
		"panics":   {func(context.Context, int64) error { panic("a hook") }, "panic"},
		"unnamed":  {func(context.Context, int64) error { return errors.New("x") }, "_OTHER"},
		"is right": {func(context.Context, int64) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &checkedStore{Store: fault.New(), check: tt.check}
				l := lock.New(s, lock.WithLogger(quiet))
				began := time.Now()
				time.Sleep(time.Minute)
				require.NoError(t, l.Do(t.Context(), key, nothing))
				require.Equal(t, time.Minute, time.Since(began))
				time.Sleep(10 * time.Second)
				require.Equal(t, tt.want, l.Stats().Trouble)
				time.Sleep(time.Minute)
				require.NoError(t, l.Do(t.Context(), key, nothing))
				synctest.Wait()
				require.EqualValues(t, 2, s.checks.Load())
				began = time.Now()
				require.NoError(t, l.Close(t.Context()))
				require.Zero(t, time.Since(began))
			})
		})
	}
}
