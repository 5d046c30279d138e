package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

// memories returns n stores of which a real machine's scheduler decides when
// they answer.
func memories(n int) (nodes []lock.Store) {
	for range n {
		nodes = append(nodes, memstore.New())
	}
	return nodes
}

// claimAgain claims until several claims do not share the nodes among them, as a
// Locker does.
func claimAgain(ctx context.Context, s lock.Store, key string, c lock.Claim) (e lock.Entry, err error) {
	for {
		e, err = s.Claim(ctx, key, c)
		if !errors.Is(err, lock.ErrNotApplied) || errors.Is(err, errors.ErrUnsupported) || ctx.Err() != nil {
			return e, err
		}
		fault.Sleep(ctx, time.Millisecond+rand.N(50*time.Millisecond))
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			latchtest.TestStore(t, 30*time.Millisecond, func(*testing.T) lock.Store {
				return persistent{quorum.New(memories(n), quorum.WithNodeTimeout(20*time.Second)), new(sync.Map)}
			})
		})
	}
}

func TestRefusesNodes(t *testing.T) {
	t.Parallel()
	memory := func() lock.Store { return memstore.New() }
	twice := memory()
	for says, stores := range map[string][]lock.Store{
		"0 stores":                             nil,
		"1 stores":                             {memory()},
		"odd":                                  {memory(), memory()},
		"4 stores":                             {memory(), memory(), memory(), memory()},
		"stores[1] is nil":                     {memory(), nil, memory()},
		"stores[2] is nil":                     {memory(), memory(), (*fault.Store)(nil)},
		"stores[1] and stores[2] are the same": {memory(), twice, twice},
		"stores[1] is a quorum":                {memory(), threeNodes(), memory()},
	} {
		requirePanics(t, says, func() { quorum.New(stores) })
	}
	// Stores that cannot be compared count as different, without a panic.
	odd := uncomparable{memory(), nil}
	require.NotPanics(t, func() { quorum.New([]lock.Store{odd, odd, memory()}) })
}

func threeNodes() *quorum.Store { return quorum.New(memories(3)) }

func requirePanics(t *testing.T, says string, f func()) {
	t.Helper()
	defer func() {
		p := recover()
		require.Contains(t, fmt.Sprint(p), says)
	}()
	f()
	t.Error("no panic")
}

func TestRefusesOptions(t *testing.T) {
	t.Parallel()
	for says, option := range map[string]func() quorum.Option{
		"WithNodeTimeout(0s)": func() quorum.Option { return quorum.WithNodeTimeout(0) },
		"WithDriftFactor(0)":  func() quorum.Option { return quorum.WithDriftFactor(0) },
		"more than 0":         func() quorum.Option { return quorum.WithDriftFactor(-0.1) },
		"at most 0.5":         func() quorum.Option { return quorum.WithDriftFactor(1) },
		"NaN":                 func() quorum.Option { return quorum.WithDriftFactor(math.NaN()) },
		"nil Option":          func() quorum.Option { return nil },
	} {
		requirePanics(t, says, func() { quorum.New(memories(3), option()) })
	}
}

// There is no number that grows with every grant, and that is said before
// a caller relies on one.
func TestHasNoFences(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]lock.Store{
		"bare":   threeNodes(),
		"opaque": quorum.New([]lock.Store{fault.New(), fault.New(), fault.New()}),
	} {
		t.Run(name, func(t *testing.T) {
			requirePanics(t, "WithFencing: quorum: there are no fences", func() { lock.New(store, lock.WithFencing()) })
			requirePanics(t, "WithFencing: quorum: there are no fences", func() { lock.New(store).With(lock.WithFencing()) })
			_, err := store.Claim(t.Context(), key, lock.Claim{Token: "a", Lease: time.Minute, Fenced: true})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorIs(t, err, lock.ErrNotApplied)
		})
	}
}

// There are no receipts either, and nothing is run or written to find that out.
func TestHasNoReceipts(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() lock.Store{
		"bare":   func() lock.Store { return threeNodes() },
		"hidden": func() lock.Store { return struct{ lock.Store }{threeNodes()} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // Close waits for a lease whose store hides that it keeps no receipts
				l := fault.Locker(t, open())
				_, replayed, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
					t.Error("run")
					return nil, nil
				})
				require.ErrorIs(t, err, errors.ErrUnsupported)
				require.NotErrorIs(t, err, lock.ErrUnknown)
				require.ErrorContains(t, err, "use one Redis")
				require.False(t, replayed)
				e := must.Get(l.Acquire(t.Context(), key))(t)
				require.ErrorIs(t, e.Settle(t.Context(), []byte("done"), keep), errors.ErrUnsupported)
				require.NoError(t, e.Context().Err(), "the lease goes on")
				require.NoError(t, e.Release(t.Context()))
			})
		})
	}
}

// No key is handed over, which is known before anything is asked: the lease goes on.
func TestHandsNoKeyOver(t *testing.T) {
	t.Parallel()
	other := fault.Locker(t, memstore.New())
	elsewhere := must.Get(other.Acquire(t.Context(), key))(t)
	ticket := must.Get(elsewhere.HandOver(t.Context(), time.Minute))(t)

	l := fault.Locker(t, threeNodes())
	e := must.Get(l.Acquire(t.Context(), key))(t)
	_, err := e.HandOver(t.Context(), time.Minute)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "cannot replace a holder")
	require.NoError(t, e.Context().Err())
	require.NoError(t, e.Extend(t.Context()))
	require.ErrorIs(t, must.Err(l.Resume(t.Context(), ticket)), errors.ErrUnsupported)
	require.NoError(t, e.Release(t.Context()))
}

func TestLagIsTheLongest(t *testing.T) {
	t.Parallel()
	slowest := fault.New()
	slowest.Lag = 40 * time.Second
	q := quorum.New([]lock.Store{memstore.New(), slowest, fault.New()}, quorum.WithNodeTimeout(time.Second))
	require.Equal(t, 40*time.Second+3*(time.Second+200*time.Millisecond), q.Describe().MaxLag,
		"calls on a node may outlast the one on the quorum")
	q = quorum.New([]lock.Store{memstore.New(), uncomparable{Store: fault.New()}, fault.New()})
	require.Greater(t, q.Describe().MaxLag, 2*time.Minute, "a node that does not say")
}

// The errors that mean more than "no answer" are passed on only if they are
// true of the whole.
func TestErrorsThatAreAnswers(t *testing.T) {
	t.Parallel()
	fails := func(with error) lock.Store {
		if with == nil {
			return fault.New()
		}
		return fault.New().Every(func(context.Context, func() error) error { return with })
	}
	full := errors.Join(lock.ErrNotApplied, lock.ErrFull)
	denied := errors.Join(lock.ErrNotApplied, lock.ErrDenied)
	for name, tt := range map[string]struct {
		nodes   []error
		is, not []error
	}{
		"all certain":     {[]error{lock.ErrNotApplied, full, lock.ErrNotApplied}, []error{lock.ErrNotApplied}, []error{lock.ErrFull}},
		"one in doubt":    {[]error{lock.ErrNotApplied, io.EOF, lock.ErrNotApplied}, nil, []error{lock.ErrNotApplied}},
		"majority full":   {[]error{nil, full, full}, []error{lock.ErrFull, lock.ErrNotApplied}, nil},
		"full, and doubt": {[]error{io.EOF, full, full}, []error{lock.ErrFull}, []error{lock.ErrNotApplied}},
		"majority denied": {[]error{nil, denied, full}, []error{lock.ErrDenied, lock.ErrNotApplied}, []error{lock.ErrFull}},
		"minority denied": {[]error{lock.ErrNotApplied, denied, lock.ErrNotApplied}, []error{lock.ErrNotApplied}, []error{lock.ErrDenied}},
		"unsupported":     {[]error{errors.ErrUnsupported, errors.ErrUnsupported, nil}, []error{errors.ErrUnsupported}, []error{lock.ErrNotApplied}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []lock.Store
			for _, err := range tt.nodes {
				nodes = append(nodes, fails(err))
			}
			_, err := quorum.New(nodes, quorum.WithNodeTimeout(time.Minute)).Claim(t.Context(), key, lock.Claim{Token: "a", Lease: time.Minute})
			require.Error(t, err)
			for _, is := range tt.is {
				require.ErrorIs(t, err, is)
			}
			for _, not := range tt.not {
				require.NotErrorIs(t, err, not)
			}
		})
	}
}
