package rowstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// slow returns calls whose executions take so long each, and the calls of every execution.
func slow(servers int, takes time.Duration) (calls *rowstore.Calls[int], executed func() [][]int) {
	calls = &rowstore.Calls[int]{Servers: servers}
	var mu sync.Mutex
	var all [][]int
	calls.Serve = func(context.Context) {
		taken, _ := calls.Take(func(int) bool { return true })
		var of []int
		for _, c := range taken {
			of = append(of, c.Of)
		}
		mu.Lock()
		all = append(all, of)
		mu.Unlock()
		time.Sleep(takes)
		for _, c := range taken {
			c.End(nil)
		}
	}
	return calls, func() [][]int {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestCallsThatWaitAreExecutedAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		servers  int
		takes    time.Duration
		executed [][]int
	}{
		"one goroutine":                      {1, time.Second, [][]int{{0}, {1, 2, 4}}},
		"another one, as the first is slow":  {2, time.Second, [][]int{{0}, {1}, {2, 4}}},
		"more, as these are slow":            {9, time.Second, [][]int{{0}, {1}, {2, 4}}},
		"no other one, as the first is fast": {2, 15 * time.Millisecond, [][]int{{0}, {1}, {2}, {4}}},
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			calls, executed := slow(tt.servers, tt.takes)
			left, leave := context.WithTimeout(t.Context(), 12*time.Millisecond)
			defer leave()
			var all sync.WaitGroup
			for i, at := range []int{0, 10, 27, 5, 40} { // in milliseconds
				all.Go(func() {
					time.Sleep(time.Duration(at) * time.Millisecond)
					ctx := t.Context()
					if i == 3 { // leaves before it is executed
						ctx = left
					}
					c, err := calls.Enter(ctx, i)
					if i == 3 {
						require.ErrorIs(t, err, context.DeadlineExceeded)
						return
					}
					require.NoError(t, err)
					require.NoError(t, c.Err)
				})
			}
			all.Wait()
			calls.Close()
			require.Equal(t, tt.executed, executed())
			_, err := calls.Enter(t.Context(), 5)
			require.ErrorIs(t, err, rowstore.ErrClosed)
		}))
	}
}

// A caller may leave while its call is executed: the call goes on, and Close waits for it.
func TestCallThatHasBegunGoesOn(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		calls, _ := slow(1, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		c, err := calls.Enter(ctx, 0)
		require.NoError(t, err)
		select {
		case <-c.Done():
			t.Fatal("done")
		default:
		}
		calls.Close()
		<-c.Done()
	})
}
