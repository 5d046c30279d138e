package quorum_test

import (
	"context"
	"crypto/cipher"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
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
func (f fleet) quorum(opts ...quorum.Option) *quorum.Store { return quorum.New(f.stores(), opts...) }

// locker returns a Locker as one process has it.
func (f fleet) locker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return fault.Locker(t, f.quorum(), append([]lock.Option{
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
		e := must.Entry(t)(f[i].Server().Claim(t.Context(), key, c))
		require.Equal(t, []any{lock.Held, c.Token}, []any{e.State, e.Token}, "claim on node %d", i)
	}
}

// states lists the entry under key on each node.
func (f fleet) states(t *testing.T) string { t.Helper(); return f.statesOf(t, key) }

func (f fleet) statesOf(t *testing.T, key string) string {
	t.Helper()
	var all []string
	for _, n := range f {
		e := must.Entry(t)(n.Server().Get(t.Context(), key))
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
			require.NoError(t, err)
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key    = "user=42"
	lease  = 3 * time.Second
	budget = 300 * time.Millisecond
	keep   = time.Hour
)

var (
	quiet  = slog.New(slog.DiscardHandler)
	print1 = []byte("request 1")
)

// persistent is a quorum that claims again by itself when it was split, and when the
// holder named was never granted: nodes answer at different instants, between which a
// split claim takes back its vote and gets another.
type persistent struct {
	*quorum.Store
	granted *sync.Map // by key and token
}

func (p persistent) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	for {
		e, err := claimAgain(ctx, p.Store, key, c)
		if err != nil || e.State != lock.Held {
			return e, err
		}
		if e.Token == c.Token {
			p.granted.Store([2]string{key, c.Token}, true)
		}
		if _, ok := p.granted.Load([2]string{key, e.Token}); ok {
			return e, nil
		}
		fault.Sleep(ctx, time.Millisecond)
	}
}

// Forget waits until no call is in flight. A claim that reaches the last node after it would leave an
// entry on a minority, which the next Forget removes and reports.
func (p persistent) Forget(ctx context.Context, key, token string) (bool, error) {
	for quorum.TokensInFlight(p.Store) > 0 && ctx.Err() == nil {
		fault.Sleep(ctx, time.Millisecond)
	}
	return p.Store.Forget(ctx, key, token)
}

// uncomparable is a store that == panics for.
type uncomparable struct {
	lock.Store
	_ []cipher.AEAD
}

// remote is a store that is some way off.
type remote struct {
	lock.Store
	distance time.Duration
}

func (r *remote) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	fault.Sleep(ctx, r.distance)
	return r.Store.Claim(ctx, key, c)
}

// inspected is a node whose operator's calls fail, if err is not nil, after some
// entries.
type inspected struct {
	*fault.Store
	err   error
	after int
}

func (n *inspected) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		i := 0
		for e, err := range n.Server().(lock.Inspector).List(ctx) {
			if n.err != nil && i == n.after {
				break
			}
			i++
			if !yield(e, err) {
				return
			}
		}
		if n.err != nil {
			yield(lock.Entry{}, n.err)
		}
	}
}

func (n *inspected) Page(context.Context, string, int, func(string) bool) ([]lock.Entry, string, error) {
	return nil, "", errors.ErrUnsupported
}

func (n *inspected) Forget(ctx context.Context, key, token string) (bool, error) {
	if n.err != nil {
		return false, n.err
	}
	return n.Server().(lock.Inspector).Forget(ctx, key, token)
}

// checked is a node with a Check and with names.
type checked struct {
	lock.Store
	err     error
	servers []string
}

func (c *checked) Describe() lock.Description {
	return lock.Description{
		Check:   func(context.Context) error { return c.err },
		Servers: func(context.Context) ([]string, error) { return c.servers, nil },
	}
}

// panicking is a node whose client has a hook that panics, if it does.
type panicking struct {
	*fault.Store
	lock.Inspector

	does bool
}

func (p panicking) Forget(ctx context.Context, key, token string) (bool, error) {
	if p.does {
		panic("a hook's")
	}
	return p.Inspector.Forget(ctx, key, token)
}

func (p panicking) Describe() lock.Description {
	about := p.Store.Describe()
	about.Check = func(context.Context) error {
		if p.does {
			panic("a hook's")
		}
		return nil
	}
	return about
}
