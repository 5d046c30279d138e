package group_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A claim at the head of the queue is sent if more than half of its time is left, or twice the
// usual time of a round trip.
func TestLateClaimsAreNotSent(t *testing.T) {
	t.Parallel()
	const budget = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		trip, waited time.Duration
		sent         bool
	}{
		"half of the time":              {60 * time.Millisecond, 50 * time.Millisecond, true},
		"less, and two round trips":     {time.Millisecond, 75 * time.Millisecond, true},
		"less, and not two round trips": {20 * time.Millisecond, 65 * time.Millisecond, false},
		"less than a round trip":        {60 * time.Millisecond, 55 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var trip atomic.Int64
				trip.Store(int64(tt.trip))
				g := newGroup(1, 1, false, func(ctx context.Context, names []string, reply func(string)) error {
					return answerAll(time.Duration(trip.Load()))(ctx, names, reply)
				})
				for range 100 { // by which it is the usual one
					require.NoError(t, do(t.Context(), g, "usual", true))
				}
				var all sync.WaitGroup
				defer all.Wait()
				trip.Store(int64(tt.waited))
				all.Go(func() { assert.NoError(t, do(t.Context(), g, "out", true)) })
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				trip.Store(int64(time.Millisecond))
				if err := do(ctx, g, "claim", true); tt.sent {
					require.NoError(t, err)
				} else {
					requireNotApplied(t, err, "overload")
				}
			})
		})
	}
}

// A batch that hangs when its time is over, for example in a hook, costs a goroutine. The number of
// such goroutines is bounded.
func TestHangingBatchesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 256
		hangs := make(chan struct{})
		g := newGroup(1, 4, false, silentUntil(hangs))
		for range 2 * most / 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { assert.Error(t, do(ctx, g, "hangs", false)) })
			}
			all.Wait()
			cancel()
			time.Sleep(20 * time.Millisecond) // their batches are over
		}
		require.Equal(t, most, out(g))
		close(hangs)
		synctest.Wait()
		require.NoError(t, do(t.Context(), g, "served", false))
	})
}

// Commands of a few callers have a round trip each. With a single processor they begin by sharing,
// since all callers wait for the system calls of each.
func TestOneProcessorShares(t *testing.T) { //nolint:paralleltest // it sets GOMAXPROCS
	for processors, most := range map[int]int{1: 2, 2: 8} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			before := runtime.GOMAXPROCS(processors)
			var sends atomic.Int64
			g := newGroup(32, 32, true, func(ctx context.Context, names []string, reply func(string)) error {
				sends.Add(1)
				return silentUntil(release)(ctx, names, reply)
			})
			runtime.GOMAXPROCS(before)
			s := newSender()
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					_, err := call(t.Context(), s, g, strconv.Itoa(i), time.Second)
					assert.NoError(t, err)
				})
			}
			synctest.Wait()
			close(release)
			all.Wait()
			require.EqualValues(t, most, sends.Load())
		})
	}
}
