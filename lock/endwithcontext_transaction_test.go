package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
)

// slow makes a step take d, even if its caller leaves.
func slow(d time.Duration) faketx.Fault {
	return func(_ context.Context, apply func() error) error {
		time.Sleep(d)
		return apply()
	}
}

// A transaction that is begun when its caller has left is rolled back.
func TestTransactionThatIsBegunTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := faketx.New()
		l := lock.New(lock.EndWithContext(s), append(txOptions(), lock.WithMaxHold(lease))...)
		s.Next(faketx.Begin, func(_ context.Context, apply func() error) error {
			time.Sleep(time.Minute)
			return apply()
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := l.Once(ctx, key, print1, mustNotRun)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, time.Second, time.Since(began))
		_, _, err = l.Once(t.Context(), key, print1, insert("row"))
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		require.NoError(t, l.Close(t.Context()))
		synctest.Wait()
		require.Zero(t, s.Open())
	})
}

// No call of a transaction begins before the previous one has returned. The caller does not wait
// longer because of this.
func TestTransactionCallsComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"within the budget of the question": budget * 3 / 2, "in the background": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := faketx.New()
				l := lock.New(lock.EndWithContext(s), txOptions()...)
				s.Next(faketx.Commit, slow(takes))
				began := time.Now()
				receipt, _, err := l.Once(t.Context(), key, print1, insert("row"))
				require.LessOrEqual(t, time.Since(began), 2*budget)
				if takes < 2*budget {
					require.NoError(t, err)
					require.Equal(t, "row", string(receipt))
				} else {
					require.ErrorIs(t, err, lock.ErrUnknown)
				}
				time.Sleep(2 * takes)
				require.Equal(t, []string{"row"}, s.Effects())
				_, replayed, err := l.Once(t.Context(), key, print1, mustNotRun)
				require.NoError(t, err)
				require.True(t, replayed)
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
	// So it is with a rollback.
	synctest.Test(t, func(t *testing.T) {
		s := faketx.New()
		l := lock.New(lock.EndWithContext(s), txOptions()...)
		s.Next(faketx.Rollback, slow(time.Minute))
		began := time.Now()
		_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return nil, errWork })
		require.ErrorIs(t, err, errWork)
		require.LessOrEqual(t, time.Since(began), budget)
		time.Sleep(2 * time.Minute)
		require.NoError(t, l.Close(t.Context()))
	})
}
