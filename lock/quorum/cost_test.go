package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A lock of a healthy quorum costs a claim and a release on each node, whichever node is
// the last to answer, and whether or not the work is over by then.
func TestOneReleaseOnEachNode(t *testing.T) {
	const locks = 100
	for name, third := range map[string]time.Duration{"as fast": roundTrip, "slower": 7 * roundTrip} {
		for _, work := range []time.Duration{0, 3 * roundTrip, 20 * roundTrip} {
			fleetCase(t, fmt.Sprintf("%s, %v of work", name, work), 3, func(t *testing.T, f fleet) {
				f[2].Every(fault.Slow(third))
				l := f.locker(t)
				for i := range locks {
					require.NoError(t, l.Do(t.Context(), fmt.Sprint(i), func(context.Context) error {
						time.Sleep(work)
						return nil
					}))
				}
				time.Sleep(time.Minute)
				for i, n := range f {
					require.Equal(t, []int{locks, locks}, []int{n.Count(fault.Claim), n.Count(fault.Release)}, "node %d", i)
					require.Empty(t, f.keys(t))
				}
			})
		}
	}
}

// With one silent node, two claims at once often have one vote each. They claim again although the
// clean-up for the silent node has spent the retry budget.
func TestSplitVotesWithASilentNode(t *testing.T) {
	const pairs = 300
	for name, silence := range map[string]fault.Func{"requests lost": fault.HangRequest, "replies lost": fault.HangReply} {
		fleetCase(t, name, 3, func(t *testing.T, f fleet) {
			f[2].Every(silence)
			a, b := f.locker(t, lock.WithBudget(600*time.Millisecond)), f.locker(t, lock.WithBudget(600*time.Millisecond))
			for i := range f {
				if i < 2 {
					f[i].Every(jitter)
				}
			}
			var held atomic.Int32
			var all sync.WaitGroup
			for i := range pairs {
				time.Sleep(10 * time.Millisecond) // two locks
				all.Go(func() {
					var granted atomic.Bool
					var pair sync.WaitGroup
					for _, l := range []*lock.Locker{a, b} {
						pair.Go(func() {
							e, err := l.Acquire(t.Context(), fmt.Sprint(i))
							if err == nil {
								granted.Store(true)
								time.Sleep(20 * time.Millisecond)
								_ = e.Release(t.Context())
							}
						})
					}
					pair.Wait()
					if granted.Load() {
						held.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, pairs, held.Load(), "pairs of which one was granted")
			f.heal()
			time.Sleep(time.Minute)
		})
	}
}
