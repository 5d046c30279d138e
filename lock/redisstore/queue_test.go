package redisstore_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/redisstore"
)

// waiting is a queued command, as a slice has it.
type waiting struct {
	command  *redisstore.Command
	deadline time.Time // zero if there is none
}

func commands(all []waiting) (list []*redisstore.Command) {
	for _, w := range all {
		list = append(list, w.command)
	}
	return list
}

// A queue does what a slice would, with deadlines that are there or not and in
// whatever order.
func TestQueueIsASlice(t *testing.T) {
	t.Parallel()
	epoch := time.Now()
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var queue redisstore.Queue
		var model []waiting
		now := epoch
		deadline := func() (d time.Time) {
			if random.IntN(3) > 0 {
				d = now.Add(time.Duration(random.IntN(20) - 2))
			}
			return d
		}
		for range 60 {
			switch do := random.IntN(6); {
			case do < 3:
				d := deadline()
				model = append(model, waiting{queue.Push(d), d})
			case do < 5 && len(model) > 0:
				at := [...]int{0, random.IntN(len(model)), len(model) - 1}[random.IntN(3)]
				queue.Remove(model[at].command)
				model = slices.Delete(model, at, at+1)
			default:
				now = now.Add(time.Duration(random.IntN(5)))
				over := func(w waiting) bool { return !w.deadline.IsZero() && !now.Before(w.deadline) }
				var expired []*redisstore.Command
				for _, w := range model {
					if over(w) {
						expired = append(expired, w.command)
					}
				}
				require.True(t, slices.Equal(expired, queue.Expired(now)), "seed %d", seed)
				require.True(t, queue.Soonest().IsZero() || now.Before(queue.Soonest()), "seed %d: it is looked through in vain", seed)
				model = slices.DeleteFunc(model, over)
			}
			requireQueued(t, &queue, model, seed)
		}
	}
}

// requireQueued requires that queue has what model has, and misses no deadline.
func requireQueued(t *testing.T, queue *redisstore.Queue, model []waiting, seed uint64) {
	t.Helper()
	want := commands(model)
	forth, back := queue.All()
	slices.Reverse(back)
	switch {
	case !slices.Equal(want, forth):
		t.Fatalf("seed %d: others are queued, or in another order", seed)
	case !slices.Equal(want, back):
		t.Fatalf("seed %d: from its end it is another queue", seed)
	case queue.Len() != len(want):
		t.Fatalf("seed %d: %d are queued, it says %d", seed, len(want), queue.Len())
	}
	soonest := queue.Soonest()
	for _, w := range model {
		if !w.deadline.IsZero() && (soonest.IsZero() || w.deadline.Before(soonest)) {
			t.Fatalf("seed %d: %v is looked at %v only", seed, w.deadline, soonest)
		}
	}
}
