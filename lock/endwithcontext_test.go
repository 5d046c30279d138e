package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

var errOrder = errors.New("out of order")

// optional is all of the optional interfaces.
type optional interface {
	lock.Store
	lock.Inspector
	lock.Pager
	lock.Watcher
	lock.Checker
	lock.ServerLister
	lock.Transactor
	lock.Amender
	lock.Describer
}

// A store keeps its optional interfaces below EndWithContext.
func TestEndWithContextKeepsWhatItsStoreCan(t *testing.T) {
	t.Parallel()
	s := &capable{memstore.New(), lock.Description{MaxLag: 7 * time.Second, Drift: 0.2, NoReceipts: errOrder, NoFences: errOrder, NoTransactions: errOrder}, make(chan struct{}, 1)}
	ends, ok := lock.EndWithContext(s).(optional)
	require.True(t, ok)
	require.Equal(t, s.about, ends.Describe())
	s.wake <- struct{}{}
	wake, stop := ends.Watch(key)
	<-wake
	stop()
	for e, err := range ends.List(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, "listed", e.Key)
	}
	ok, err := ends.Forget(t.Context(), "listed", "token")
	require.NoError(t, err)
	require.True(t, ok)
	page, next, err := ends.Page(t.Context(), "", 1, nil)
	require.NoError(t, err)
	require.Equal(t, []lock.Entry{{Key: "paged"}}, page)
	require.Equal(t, "next", next)
	ok, err = ends.Amend(t.Context(), "am", "e", []byte("nd"), []byte("ed"))
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, ends.Check(t.Context()), errOrder)
	servers, err := ends.Servers(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, servers)
	work, _, err := ends.Begin(t.Context(), key, "token")
	require.NoError(t, err)
	require.Equal(t, key+"token", work.Value(capable{}))
}

// EndWithContext adds no abilities that its store does not have.
func TestEndWithContextOfAPlainStore(t *testing.T) {
	t.Parallel()
	ends, ok := lock.EndWithContext(plain{memstore.New()}).(optional)
	require.True(t, ok)
	for _, err := range ends.List(t.Context()) {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	_, err := ends.Forget(t.Context(), key, "token")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, _, err = ends.Page(t.Context(), "", 1, nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = ends.Amend(t.Context(), key, "token", nil, nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	wake, stop := ends.Watch(key)
	require.Nil(t, wake)
	stop()
	require.NoError(t, ends.Check(t.Context()))
	servers, err := ends.Servers(t.Context())
	require.NoError(t, err)
	require.Empty(t, servers)
	_, _, err = ends.Begin(t.Context(), key, "token")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, ends.Describe().NoTransactions, errors.ErrUnsupported)
	require.Equal(t, lock.Describe(plain{memstore.New()}), ends.Describe())
	require.ErrorContains(t, lock.EndWithContext(fault.New().Every(fault.Refuse, fault.Get)).(lock.Checker).Check(t.Context()), "READONLY", "it finds out by a Get")
}

// A store whose calls wait for nothing needs no goroutines.
func TestEndWithContextOfALocalStore(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	require.Same(t, s, lock.EndWithContext(s))
}

// one-holder: a holder stops relying on its lease earlier by the possible difference of the clocks
// of the store, and gets no fence where there is none, also through a wrapper.
func TestEndWithContextOfAStoreThatDrifts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const factor = 0.2
		s := lock.EndWithContext(&capable{Store: memstore.New(), about: lock.Description{MaxLag: 1, Drift: factor, NoFences: errOrder}})
		require.Panics(t, func() { lock.New(s, lock.WithFencing()) })
		l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.Less(t, time.Until(l.Snapshot(1, nil).Holds[0].Until), time.Duration((1-factor)*float64(lease)))
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, l.Close(t.Context()))
	})
}
