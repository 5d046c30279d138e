package rowstore_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTimesAreRoundedUpAndEnd(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(2), rowstore.Micros(time.Microsecond+1))
	require.Positive(t, rowstore.Micros(math.MaxInt64))
	require.Equal(t, int64(math.MaxInt64), rowstore.Plus(math.MaxInt64-1, 2))
}

func TestSweeps(t *testing.T) {
	t.Parallel()
	var sweeps rowstore.Sweeps
	swept := make(chan struct{}, 10)
	for range 3*rowstore.SweepEvery - 1 {
		sweeps.Claim(t.Context(), 1, func(context.Context, int, int64) (int, error) {
			swept <- struct{}{}
			<-t.Context().Done() // one at a time
			return 0, nil
		})
	}
	<-swept
	require.Empty(t, swept)
}

// A sweep is due after as many keys, in however many claims.
func TestSweepsAreDueByKeys(t *testing.T) {
	t.Parallel()
	var sweeps rowstore.Sweeps
	swept := make(chan struct{}, 1)
	for range rowstore.SweepEvery/5 + 1 {
		sweeps.Claim(t.Context(), 5, func(context.Context, int, int64) (int, error) { close(swept); return 0, nil })
	}
	<-swept
}

// A sweep begins where the last one ended, and at the first row once a minute, for the rows that
// were locked then.
func TestSweepsBeginAgainAtTheFirstRow(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		var sweeps rowstore.Sweeps
		require.Zero(t, sweeps.From())
		sweeps.UpTo(5_000_000)
		require.Equal(t, int64(4_999_000), sweeps.From())
		sweeps.UpTo(1_000_000)
		time.Sleep(50 * time.Second)
		require.Equal(t, int64(4_999_000), sweeps.From())
		time.Sleep(11 * time.Second)
		require.Zero(t, sweeps.From())
	})
}
