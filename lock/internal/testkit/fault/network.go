package fault

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// networkLag is the longest time after the return of a call in which a [Network] may apply it.
const networkLag = 5 * time.Second

// Network is a store behind a network with random faults. It is safe for concurrent use.
type Network struct {
	calls

	mu     sync.Mutex
	random *rand.Rand
	rate   float64
	faults int
}

// NewNetwork returns store behind a network. Between a tenth and six tenths of all calls have a
// fault.
func NewNetwork(store lock.Store, seed uint64) *Network {
	random := rand.New(rand.NewPCG(seed, 2))
	n := &Network{random: random, rate: 0.1 + 0.5*random.Float64()}
	n.calls = calls{func() lock.Store { return store }, n.meet}
	return n
}

// Describe is part of [lock.Describer].
func (*Network) Describe() lock.Description { return lock.Description{MaxLag: networkLag} }

// Improve multiplies the rate of faults by share; 0 ends them.
func (n *Network) Improve(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate *= share
}

// Faults returns how many calls have met a fault.
func (n *Network) Faults() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults
}

// meet returns the delay of the next call, and its fault if it has one.
func (n *Network) meet(Op) Func {
	f, way := n.pick()
	return func(ctx context.Context, apply func() error) error {
		time.Sleep(way)
		if f == nil {
			return apply()
		}
		return f(ctx, apply)
	}
}

func (n *Network) pick() (f Func, way time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	way = time.Duration(n.random.IntN(5)) * time.Millisecond
	if n.random.Float64() >= n.rate {
		return nil, way
	}
	n.faults++
	some := func(most time.Duration) time.Duration { return time.Duration(n.random.Int64N(int64(most))) }
	faults := []Func{
		LoseReply, LoseRequest, Refuse, HangReply, HangRequest,
		Slow(some(400 * time.Millisecond)), Late(some(4500 * time.Millisecond)), Stuck(some(9 * time.Second)),
	}
	return faults[n.random.IntN(len(faults))], way
}
