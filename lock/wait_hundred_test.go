package lock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// A hundred waiters in four processes: each gets the key once, in the order of
// arrival within its process, and only one of each process asks for it. With
// hints no time passes between two holders; without, a poll where it goes from
// one process to another.
func TestHundredWaiters(t *testing.T) {
	const (
		processes = 4
		each      = 25
		hold      = 100 * time.Millisecond
	)
	for name, perSecond := range map[string]int{"hints": 1, "polls": 4} {
		t.Run(name, func(t *testing.T) {
			hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
				s.none = perSecond == 4
				first, err := open().Acquire(t.Context(), key)
				require.NoError(t, err)
				var mu sync.Mutex
				orders := make([][]int, processes)
				var wg sync.WaitGroup
				for p := range processes {
					l := open(lock.WithWait(time.Minute))
					for i := range each {
						wg.Go(func() {
							err := l.Do(context.Background(), key, func(context.Context) error {
								mu.Lock()
								orders[p] = append(orders[p], i)
								mu.Unlock()
								time.Sleep(hold)
								return nil
							})
							if err != nil {
								t.Error(err)
							}
						})
						synctest.Wait()
					}
				}
				require.Len(t, s.watched(), processes, "one contender per process")
				before := s.Count(fault.Claim)
				time.Sleep(10 * time.Second)
				require.Less(t, s.Count(fault.Claim)-before, 2*processes*10*perSecond, "each contender polls, and no other caller does")
				require.NoError(t, first.Release(t.Context()))
				began := time.Now()
				wg.Wait()
				took, most := time.Since(began), processes*each*hold
				t.Logf("%v for %v of holding", took, most)
				require.GreaterOrEqual(t, took, most)
				if s.none {
					require.LessOrEqual(t, took, most+most/5)
				} else {
					require.LessOrEqual(t, took, most+processes*hintPause)
				}
				for _, order := range orders {
					require.Len(t, order, each)
					require.True(t, slices.IsSorted(order), "%v", order)
				}
			})
		})
	}
}
