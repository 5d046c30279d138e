package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// capable has all that a store can have beyond the interface, and a plain one nothing.
type capable struct{ lock.Inspector }

type capableStore struct {
	lock.Store
	capable

	server string
	wake   chan struct{}
}

type plainStore struct{ lock.Store }

func newCapable(server string) *capableStore {
	m := lock.NewMemory()
	return &capableStore{Store: m, capable: capable{m.(lock.Inspector)}, server: server, wake: make(chan struct{}, 1)}
}

func (*capableStore) MaxLag() time.Duration { return 7 * time.Second }

func (s *capableStore) Watch(string) (<-chan struct{}, func()) { return s.wake, func() {} }

func (*capableStore) Page(context.Context, string, int, func(string) bool) ([]lock.Entry, string, error) {
	return []lock.Entry{{Key: "paged"}}, "", nil
}

func (*capableStore) Check(context.Context) error { return nil }

func (s *capableStore) Servers(context.Context) ([]string, error) { return []string{s.server}, nil }

// What a store can do beyond the interface, it can do below EndWithContext, and what it
// cannot do is not made up.
func TestEndWithContextKeepsWhatItsStoreCan(t *testing.T) {
	t.Parallel()
	s := newCapable("a")
	bounded := lock.EndWithContext(s)
	require.Equal(t, 7*time.Second, bounded.(interface{ MaxLag() time.Duration }).MaxLag())
	s.wake <- struct{}{}
	wake, stop := bounded.(interface {
		Watch(key string) (<-chan struct{}, func())
	}).Watch(key)
	<-wake
	stop()
	page, _, err := bounded.(interface {
		Page(ctx context.Context, cursor string, limit int, match func(string) bool) ([]lock.Entry, string, error)
	}).Page(t.Context(), "", 1, nil)
	require.NoError(t, err)
	require.Len(t, page, 1)
	_, inspects := lock.EndWithContext(plainStore{lock.NewMemory()}).(lock.Inspector)
	require.False(t, inspects)
}

// A quorum asks its nodes what servers they are, and finds out by a Get whether one is
// there that has no Check.
func TestEndWithContextBelowAQuorum(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes []lock.Store
		is    string
	}{
		"other servers": {[]lock.Store{newCapable("a"), newCapable("b"), newCapable("c")}, ""},
		"one server":    {[]lock.Store{newCapable("a"), newCapable("b"), newCapable("a")}, "by two addresses"},
		"plain ones":    {[]lock.Store{plainStore{lock.NewMemory()}, plainStore{lock.NewMemory()}, plainStore{lock.NewMemory()}}, ""},
		"that are down": {[]lock.Store{newScripted().every(refuse, get), newScripted().every(refuse, get), newScripted()}, "1 of 3 nodes are well"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bounded []lock.Store
			for _, s := range tt.nodes {
				bounded = append(bounded, lock.EndWithContext(s))
			}
			err := lock.NewQuorum(bounded).(interface {
				Check(ctx context.Context) error
			}).Check(t.Context())
			if tt.is == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.is)
			}
		})
	}
}

// one-holder: over a quorum, a holder stops relying on its lease as much earlier as
// the nodes' clocks can differ, and gets no fence, whatever the quorum is wrapped in.
func TestEndWithContextOverAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const factor = 0.2
		quorum := lock.EndWithContext(lock.NewQuorum([]lock.Store{lock.NewMemory(), lock.NewMemory(), lock.NewMemory()}, lock.WithDriftFactor(factor)))
		require.PanicsWithValue(t, "lock: WithFencing over a quorum: the nodes' clocks and counters differ, so no number grows with every grant; "+
			"fence over a single store, or let a constraint of the database refuse late writes", func() { lock.New(quorum, lock.WithFencing()) })
		l := lock.New(quorum, lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.Less(t, time.Until(l.Snapshot(1, nil).Holds[0].Until), time.Duration((1-factor)*float64(lease)))
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, l.Close(t.Context()))
	})
}

// A quorum would not see that such a node is sealed.
func TestEndWithContextIsBelowNewSealed(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "lock: EndWithContext of a sealed store: seal what it returns, NewSealed(EndWithContext(store), aead)",
		func() { lock.EndWithContext(lock.NewSealed(newCapable("a"), gcm(t, 1))) })
}
