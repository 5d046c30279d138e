package lock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// network is a store behind a network that does what it likes, from a seed.
type network struct {
	store lock.Store

	mu     sync.Mutex
	random *rand.Rand
	rate   float64
}

func newNetwork(store lock.Store, seed uint64) *network {
	random := rand.New(rand.NewPCG(seed, 2))
	return &network{store: store, random: random, rate: 0.1 + 0.5*random.Float64()}
}

// calm ends all faults.
func (n *network) calm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate = 0
}

// draw returns what the next call meets, and how long it is under way.
func (n *network) draw() (f fault, lag time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lag = time.Duration(n.random.IntN(5)) * time.Millisecond
	if n.random.Float64() >= n.rate {
		return nil, lag
	}
	some := func(most time.Duration) time.Duration { return time.Duration(n.random.Int64N(int64(most))) }
	faults := []fault{
		loseReply, loseRequest, refuse, hangReply, hangRequest,
		slow(some(400 * time.Millisecond)), late(some(4500 * time.Millisecond)), stuck(some(9 * time.Second)),
	}
	return faults[n.random.IntN(len(faults))], lag
}

// through makes a call. A late application shares no memory with it.
func through[T any](ctx context.Context, n *network, call func(context.Context) (T, error)) (T, error) {
	f, lag := n.draw()
	time.Sleep(lag)
	applied := context.WithoutCancel(ctx)
	var mu sync.Mutex
	var value T
	apply := func() error {
		v, err := call(applied)
		mu.Lock()
		defer mu.Unlock()
		value = v
		return err
	}
	var err error
	if f == nil {
		err = apply()
	} else {
		err = f(ctx, apply)
	}
	mu.Lock()
	defer mu.Unlock()
	return value, err
}

func (n *network) Describe() lock.Description { return lock.Description{MaxLag: 5 * time.Second} }

func (n *network) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return through(ctx, n, func(ctx context.Context) (lock.Entry, error) { return n.store.Claim(ctx, key, c) })
}

func (n *network) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return through(ctx, n, func(ctx context.Context) (bool, error) { return n.store.Renew(ctx, key, c) })
}

func (n *network) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	return through(ctx, n, func(ctx context.Context) (bool, error) { return n.store.Settle(ctx, key, token, receipt, keep) })
}

func (n *network) Release(ctx context.Context, key, token string) (bool, error) {
	return through(ctx, n, func(ctx context.Context) (bool, error) { return n.store.Release(ctx, key, token) })
}

func (n *network) Get(ctx context.Context, key string) (lock.Entry, error) {
	return through(ctx, n, func(ctx context.Context) (lock.Entry, error) { return n.store.Get(ctx, key) })
}
