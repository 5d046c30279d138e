package wire_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// One reply in a thousand is late, and holds up its connection. The callers behind it send again over
// another connection. There are enough: at 256 callers, a dozen are held up at a time.
func TestCallersBehindLateReplies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "simulates hundreds of callers")
	t.Parallel()
	for _, callers := range []int{64, 256} {
		t.Run(strconv.Itoa(callers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const usual, late, start, end = 100 * time.Microsecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second
				began := time.Now()
				s := over(t, &fake{per: always(4 * time.Microsecond), way: func() time.Duration {
					if time.Since(began) > start/2 && rand.IntN(1000) == 0 {
						return late
					}
					return usual
				}})
				sender := newSender()
				var mu sync.Mutex
				var took []time.Duration
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for time.Since(began) < end {
							cycle := time.Now()
							for _, yields := range []bool{true, false} {
								assert.NoError(t, call(t, s, sender, strconv.Itoa(i), yields))
							}
							if time.Since(began) > start {
								mu.Lock()
								took = append(took, time.Since(cycle))
								mu.Unlock()
							}
						}
					})
				}
				all.Wait()
				slices.Sort(took)
				require.LessOrEqual(t, took[len(took)*99/100], 30*time.Millisecond)
			})
		})
	}
}
