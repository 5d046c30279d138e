package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/journal"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

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

// A store that begins to fail its check is reported once, and once more when it passes again.
func TestAFailedCheckIsReportedOnce(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		var b journal.Journal
		var wrong error
		s := &checkedStore{Store: fault.New(), check: func(context.Context, int64) error { return wrong }}
		l := lock.New(s, lock.WithLogger(b.Logger()))
		for lines, class := range []string{"", "OOM", ""} {
			if wrong = nil; class != "" {
				wrong = namedError{errors.New("raise maxmemory")}
			}
			for range 10 {
				require.NoError(t, l.Do(t.Context(), key, nothing))
				time.Sleep(time.Minute)
			}
			require.Equal(t, class, l.Stats().Trouble)
			require.Len(t, b.Lines(), max(lines, 1))
		}
		for _, text := range []string{"level=ERROR", "the store failed its check", "class=OOM", "raise maxmemory"} {
			require.Contains(t, b.Lines()[0], text)
		}
		require.Contains(t, b.Lines()[1], "level=INFO")
		require.Contains(t, b.Lines()[1], "has passed its check again")
		require.NoError(t, l.Close(t.Context()))
	})
}

// A store in use is checked once a minute, for any number of claims, and another one is not.
func TestAStoreInUseIsCheckedOnceAMinute(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
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

// A check that hangs holds up no claim, and ends with Close. A panic is a failure of the check.
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
		t.Run(name, virtual.Test(func(t *testing.T) {
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
		}))
	}
}
