package quorum_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/quorum"
)

const (
	roundTrip   = time.Millisecond
	nodeTimeout = 50 * time.Millisecond // the default
	longLease   = time.Hour             // nothing in these tests goes away by itself
)

// condition is the fault of a node.
type condition byte

const (
	up       condition = 'u'
	down     condition = 'd' // refuses connections
	sluggish condition = 's' // executes what it gets, long after the node timeout
	silent   condition = 'l' // executes what it gets, and its replies are lost
)

var faultOf = map[condition]fault.Func{up: fault.Slow(roundTrip), down: fault.Refuse, sluggish: fault.Late(4 * nodeTimeout), silent: fault.LoseReply}

// fleet has the servers of a quorum.
type fleet []*fault.Store

func newFleet(n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = fault.New()
	}
	f.heal()
	return f
}

// withFleet runs a test in virtual time over n servers.
func withFleet(t *testing.T, n int, run func(t *testing.T, f fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { t.Helper(); run(t, newFleet(n)) })
}

// fleetCase is withFleet for one case of a test.
func fleetCase(t *testing.T, name string, n int, run func(t *testing.T, f fleet)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Helper(); withFleet(t, n, run) })
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
func (f fleet) quorum(opts ...quorum.Option) *quorum.Store {
	return quorum.New(f.stores(), opts...)
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
		n.Every(faultOf[condition(conditions[i])])
	}
}

func (f fleet) heal() { f.be(strings.Repeat(string(up), len(f))) }

// put makes an entry on the nodes.
func (f fleet) put(t *testing.T, c lock.Claim, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		e, err := f[i].Server().Claim(t.Context(), key, c)
		if err != nil || e.State != lock.Held || e.Token != c.Token {
			t.Fatalf("claim on node %d: %v, %v", i, e, err)
		}
	}
}

// states lists the entry under key on each node.
func (f fleet) states(t *testing.T) string { t.Helper(); return f.statesOf(t, key) }

func (f fleet) statesOf(t *testing.T, key string) string {
	t.Helper()
	var all []string
	for _, n := range f {
		e, err := n.Server().Get(t.Context(), key)
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

// keys returns the keys that a node has.
func (f fleet) keys(t *testing.T) (all []string) {
	t.Helper()
	for _, n := range f {
		for e, err := range n.Server().(lock.Inspector).List(t.Context()) {
			if err != nil {
				t.Fatalf("List: %v", err)
			}
			all = append(all, e.Key)
		}
	}
	return all
}

// jitter delays the arrival of a call, and its answer, by random times.
func jitter(ctx context.Context, apply func() error) error {
	fault.Sleep(ctx, rand.N(roundTrip))
	return fault.Slow(rand.N(roundTrip))(ctx, apply)
}
