package lock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

const (
	roundTrip   = time.Millisecond
	nodeTimeout = 50 * time.Millisecond // the default
	longLease   = time.Hour             // nothing in these tests goes away by itself
)

// condition is what is wrong with a node.
type condition byte

const (
	up       condition = 'u'
	down     condition = 'd' // refuses connections
	sluggish condition = 's' // executes what it gets, long after the node timeout
	silent   condition = 'l' // executes what it gets, and its replies are lost
)

var faultOf = map[condition]fault{up: slow(roundTrip), down: refuse, sluggish: late(4 * nodeTimeout), silent: loseReply}

// node is one server of a quorum, behind a network.
type node struct {
	mu     sync.Mutex
	store  lock.Store
	faults map[op]fault
	next   map[op][]fault
	calls  map[op]int
}

func (n *node) draw(o op) fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[o]++
	if queue := n.next[o]; len(queue) > 0 {
		n.next[o] = queue[1:]
		return queue[0]
	}
	return n.faults[o]
}

// be sets what calls of ops meet, all if there are none.
func (n *node) be(f fault, ops ...op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(ops) == 0 {
		ops = []op{claim, renew, settle, release, get}
	}
	for _, o := range ops {
		n.faults[o] = f
	}
}

// once lines up what the next calls of o meet.
func (n *node) once(o op, faults ...fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next[o] = append(n.next[o], faults...)
}

func (n *node) count(o op) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[o]
}

// restart forgets everything.
func (n *node) restart() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store = lock.NewMemory()
}

// server is what the node has now. What lands late, lands on what there is then.
func (n *node) server() lock.Store {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store
}

// pass makes a call. One that is applied late shares no memory with it.
func pass[T any](ctx context.Context, n *node, o op, call func(context.Context, lock.Store) (T, error)) (T, error) {
	var mu sync.Mutex
	var value T
	err := n.draw(o)(ctx, func() error {
		v, err := call(context.WithoutCancel(ctx), n.server())
		mu.Lock()
		defer mu.Unlock()
		value = v
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return value, err
}

func (*node) MaxLag() time.Duration { return 5 * time.Second }

func (n *node) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return pass(ctx, n, claim, func(ctx context.Context, s lock.Store) (lock.Entry, error) { return s.Claim(ctx, key, c) })
}

func (n *node) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return pass(ctx, n, renew, func(ctx context.Context, s lock.Store) (bool, error) { return s.Renew(ctx, key, c) })
}

func (n *node) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	return pass(ctx, n, settle, func(ctx context.Context, s lock.Store) (bool, error) {
		return s.Settle(ctx, key, token, receipt, keep)
	})
}

func (n *node) Release(ctx context.Context, key, token string) (bool, error) {
	return pass(ctx, n, release, func(ctx context.Context, s lock.Store) (bool, error) { return s.Release(ctx, key, token) })
}

func (n *node) Get(ctx context.Context, key string) (lock.Entry, error) {
	return pass(ctx, n, get, func(ctx context.Context, s lock.Store) (lock.Entry, error) { return s.Get(ctx, key) })
}

// fleet is the servers of a quorum.
type fleet []*node

func newFleet(n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = &node{store: lock.NewMemory(), faults: make(map[op]fault), next: make(map[op][]fault), calls: make(map[op]int)}
	}
	f.heal()
	return f
}

// stores are the nodes as a process is given them.
func (f fleet) stores() []lock.Store {
	stores := make([]lock.Store, len(f))
	for i, n := range f {
		stores[i] = n
	}
	return stores
}

// quorum returns a quorum as one process has it.
func (f fleet) quorum(opts ...lock.QuorumOption) lock.Store {
	return lock.NewQuorum(f.stores(), opts...)
}

// locker returns a Locker as one process has it.
func (f fleet) locker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return lockerOver(t, f.quorum(), append([]lock.Option{
		lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(time.Minute),
	}, opts...)...)
}

// be sets the conditions of all nodes, one a letter.
func (f fleet) be(conditions string) {
	for i, n := range f {
		n.be(faultOf[condition(conditions[i])])
	}
}

func (f fleet) heal() { f.be(strings.Repeat(string(up), len(f))) }

// put makes an entry on the nodes.
func (f fleet) put(t *testing.T, c lock.Claim, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		e, err := f[i].server().Claim(t.Context(), key, c)
		if err != nil || e.State != lock.Held || e.Token != c.Token {
			t.Fatalf("claim on node %d: %v, %v", i, e, err)
		}
	}
}

// states is what is under key on each node.
func (f fleet) states(t *testing.T) string { t.Helper(); return f.statesOf(t, key) }

func (f fleet) statesOf(t *testing.T, key string) string {
	t.Helper()
	var all []string
	for _, n := range f {
		e, err := n.server().Get(t.Context(), key)
		if err != nil {
			t.Fatalf("Get: %v", err)
		}
		text := e.State.String()
		if e.State != lock.Free {
			text += ":" + e.Token
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}
