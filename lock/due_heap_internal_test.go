package lock

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type timed struct{ due, place int }

func (t *timed) dueBefore(other *timed) bool { return t.due < other.due }
func (t *timed) moved(to int)                { t.place = to }

// Whatever is added, removed and changed in between, what comes off is in order, and
// each knows its place until then.
func TestDueHeap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var h dueHeap[*timed]
		var all []*timed
		for range 1000 {
			switch at := r.IntN(max(len(all), 1)); {
			case len(all) == 0 || r.IntN(5) > 1:
				added := &timed{due: r.IntN(200)}
				h.add(added)
				all = append(all, added)
			case r.IntN(2) == 0:
				require.Same(t, all[at], h.remove(all[at].place))
				require.Equal(t, nowhere, all[at].place)
				all = slices.Delete(all, at, at+1)
			default:
				all[at].due = r.IntN(200)
				h.fix(all[at].place)
			}
			require.Len(t, h, len(all))
			for i, e := range h {
				require.Equal(t, i, e.place)
			}
		}
		for last := 0; len(h) > 0; {
			next := h.remove(0)
			require.GreaterOrEqual(t, next.due, last)
			last = next.due
		}
	}
}
