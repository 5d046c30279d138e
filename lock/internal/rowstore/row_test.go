package rowstore_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRow(t *testing.T) {
	t.Parallel()
	held := rowstore.RowOf("k", &lock.Claim{Token: "t", Attempt: 2, Lease: 10 * time.Microsecond, Linger: 5 * time.Microsecond}, 100)
	settled := *held
	settled.Settle([]byte("receipt"), 30*time.Microsecond)
	takeover := lock.Claim{Token: "u", Replaces: "t"}
	handover := lock.Claim{Token: "u", Replaces: "t", ReplacesHeld: true}
	for name, tt := range map[string]struct {
		row   *rowstore.Row
		now   int64
		state lock.State
		left  time.Duration

		claimed, takenOver, handedOver bool
	}{
		"none":                {nil, 100, lock.Free, 0, true, false, false},
		"held":                {held, 109, lock.Held, time.Microsecond, false, false, true},
		"its lease has ended": {held, 110, lock.Abandoned, 5 * time.Microsecond, false, true, true},
		"over":                {held, 115, lock.Free, 0, true, false, false},
		"settled":             {&settled, 129, lock.Settled, time.Microsecond, false, false, false},
		"no longer kept":      {&settled, 130, lock.Free, 0, true, false, false},
	} {
		if tt.row != nil {
			tt.row.At = tt.now
		}
		require.Equal(t, tt.state, tt.row.State(), name)
		e := tt.row.Entry()
		require.Equal(t, tt.left, e.Left, name)
		if tt.state != lock.Free {
			require.Equal(t, 2, e.Attempt, name)
		}
		require.Equal(t, tt.state != lock.Free, tt.row.Of("t"), name)
		require.False(t, tt.row.Of("u"), name)
		require.Equal(t, tt.claimed, tt.row.YieldsTo(&lock.Claim{Token: "u"}), name)
		require.Equal(t, tt.takenOver, tt.row.YieldsTo(&takeover), name)
		require.Equal(t, tt.handedOver, tt.row.YieldsTo(&handover), name)
	}
}

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

// A set makes as many rows as it has keys: a sweep is due after as many keys, in however many
// claims.
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
