package lock_test

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/lock"
)

// memories returns n stores of which a real machine's scheduler decides when
// they answer.
func memories(n int) (nodes []lock.Store) {
	for range n {
		nodes = append(nodes, lock.NewMemory())
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
		sleep(ctx, time.Millisecond+rand.N(50*time.Millisecond))
	}
}

type persistent struct{ quorum }

type quorum interface {
	lock.Store
	lock.Inspector
	LocksOnly() error
}

func (p persistent) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return claimAgain(ctx, p.quorum, key, c)
}

func TestQuorumConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			latchtest.TestStore(t, 30*time.Millisecond, func(*testing.T) lock.Store {
				return persistent{lock.NewQuorum(memories(n), lock.WithNodeTimeout(20*time.Second)).(quorum)} //nolint:forcetypeassert // it is
			})
		})
	}
}

func TestQuorumRefusesNodes(t *testing.T) {
	t.Parallel()
	memory := lock.NewMemory
	twice := memory()
	for name, tt := range map[string]struct {
		stores []lock.Store
		says   string
	}{
		"none":      {nil, "0 stores"},
		"one":       {[]lock.Store{memory()}, "1 stores"},
		"two":       {[]lock.Store{memory(), memory()}, "odd"},
		"even":      {[]lock.Store{memory(), memory(), memory(), memory()}, "4 stores"},
		"nil":       {[]lock.Store{memory(), nil, memory()}, "stores[1] is nil"},
		"nil type":  {[]lock.Store{memory(), memory(), (*scripted)(nil)}, "stores[2] is nil"},
		"same":      {[]lock.Store{memory(), twice, twice}, "stores[1] and stores[2] are the same"},
		"quorum":    {[]lock.Store{memory(), threeNodes(), memory()}, "stores[1] is a quorum"},
		"sealed":    {[]lock.Store{memory(), memory(), lock.NewSealed(memory(), gcm(t, 1))}, "nothing to seal"},
		"sealed in": {[]lock.Store{memory(), lock.NewSealed(newScripted(), gcm(t, 1)), memory()}, "nothing to seal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requirePanics(t, tt.says, func() { lock.NewQuorum(tt.stores) })
		})
	}
	// What cannot be compared is not found to be the same, and no panic either.
	odd := uncomparable{memory(), nil}
	require.NotPanics(t, func() { lock.NewQuorum([]lock.Store{odd, odd, memory()}) })
}

type uncomparable struct {
	lock.Store
	_ []cipher.AEAD
}

func threeNodes() lock.Store {
	return lock.NewQuorum([]lock.Store{lock.NewMemory(), lock.NewMemory(), lock.NewMemory()})
}

func requirePanics(t *testing.T, says string, f func()) {
	t.Helper()
	defer func() {
		p := recover()
		require.Contains(t, fmt.Sprint(p), says)
	}()
	f()
	t.Error("no panic")
}

func TestQuorumRefusesOptions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option func() lock.QuorumOption
		says   string
	}{
		"no node timeout":       {func() lock.QuorumOption { return lock.WithNodeTimeout(0) }, "WithNodeTimeout(0s)"},
		"negative node timeout": {func() lock.QuorumOption { return lock.WithNodeTimeout(-1) }, "positive"},
		"no drift":              {func() lock.QuorumOption { return lock.WithDriftFactor(0) }, "WithDriftFactor(0)"},
		"negative drift":        {func() lock.QuorumOption { return lock.WithDriftFactor(-0.1) }, "more than 0"},
		"drift of all":          {func() lock.QuorumOption { return lock.WithDriftFactor(1) }, "at most 0.5"},
		"no number":             {func() lock.QuorumOption { return lock.WithDriftFactor(nan()) }, "NaN"},
		"nil":                   {func() lock.QuorumOption { return nil }, "nil QuorumOption"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requirePanics(t, tt.says, func() {
				lock.NewQuorum(memories(3), tt.option())
			})
		})
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

// There is no number that grows with every grant, and that is said before
// a caller relies on one.
func TestQuorumHasNoFences(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]lock.Store{
		"bare":    threeNodes(),
		"bounded": lock.EndWithContext(threeNodes()),
		"opaque":  lock.NewQuorum([]lock.Store{newScripted(), newScripted(), newScripted()}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requirePanics(t, "WithFencing over a quorum", func() { lock.New(store, lock.WithFencing()) })
			requirePanics(t, "WithFencing over a quorum", func() { lock.New(store).With(lock.WithFencing()) })
			_, err := store.Claim(t.Context(), key, lock.Claim{Token: "a", Lease: time.Minute, Fenced: true})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorIs(t, err, lock.ErrNotApplied)
		})
	}
}

// There are no receipts either, and nothing is run or written to find that out.
func TestQuorumHasNoReceipts(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]lock.Store{
		"bare":    threeNodes(),
		"bounded": lock.EndWithContext(threeNodes()),
		"hidden":  struct{ lock.Store }{threeNodes()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lockerOver(t, store)
			_, replayed, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
				t.Error("run")
				return nil, nil
			})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.NotErrorIs(t, err, lock.ErrUnknown)
			require.ErrorContains(t, err, "use one Redis")
			require.False(t, replayed)
			e, err := l.Acquire(t.Context(), key)
			require.NoError(t, err)
			require.ErrorIs(t, e.Settle(t.Context(), []byte("done"), keep), errors.ErrUnsupported)
		})
	}
	requirePanics(t, "nothing to seal", func() { lock.NewSealed(threeNodes(), gcm(t, 1)) })
}

func TestQuorumIsAnInspectorIfItsNodesAre(t *testing.T) {
	t.Parallel()
	_, is := threeNodes().(lock.Inspector)
	require.True(t, is)
	_, is = lock.NewQuorum([]lock.Store{lock.NewMemory(), newScripted(), lock.NewMemory()}).(lock.Inspector)
	require.False(t, is)
}

func TestQuorumLagIsTheLongest(t *testing.T) {
	t.Parallel()
	slowest := newScripted()
	slowest.lag = 40 * time.Second
	q := lock.NewQuorum([]lock.Store{lock.NewMemory(), slowest, newScripted()}, lock.WithNodeTimeout(time.Second))
	require.Equal(t, 40*time.Second+3*(time.Second+200*time.Millisecond), q.(interface{ MaxLag() time.Duration }).MaxLag(),
		"calls on a node may outlast the one on the quorum")
	q = lock.NewQuorum([]lock.Store{lock.NewMemory(), uncomparable{Store: newScripted()}, newScripted()})
	require.Greater(t, q.(interface{ MaxLag() time.Duration }).MaxLag(), 2*time.Minute, "a node that does not say")
}

func TestQuorumErrorNamesNodes(t *testing.T) {
	t.Parallel()
	nodes := []lock.Store{newScripted(), newScripted().every(refuse, claim), newScripted().every(loseReply, claim)}
	q := lock.NewQuorum(nodes, lock.WithNodeTimeout(time.Minute))
	_, err := q.Claim(t.Context(), key, lock.Claim{Token: "a", Lease: time.Minute})
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrNotApplied)
	text := err.Error()
	require.Contains(t, text, "1 of 3 nodes answered, 2 have to agree")
	require.Contains(t, text, "stores[1]: lock: not applied\nREADONLY")
	require.Contains(t, text, "stores[2]: EOF")
	require.NotContains(t, text, "stores[0]")
	require.True(t, strings.HasPrefix(text, "lock: quorum: claim: "))
}

// The errors that mean more than "no answer" are passed on only if they are
// true of the whole.
func TestQuorumErrorsThatAreAnswers(t *testing.T) {
	t.Parallel()
	fails := func(with error) lock.Store {
		return newScripted().every(func(context.Context, func() error) error { return with }, claim, renew, settle, release, get)
	}
	full := errors.Join(lock.ErrNotApplied, lock.ErrFull)
	denied := errors.Join(lock.ErrNotApplied, lock.ErrDenied)
	for name, tt := range map[string]struct {
		nodes   []error
		is, not []error
	}{
		"all certain":     {[]error{lock.ErrNotApplied, full, lock.ErrNotApplied}, []error{lock.ErrNotApplied}, []error{lock.ErrFull}},
		"one in doubt":    {[]error{lock.ErrNotApplied, errEOF, lock.ErrNotApplied}, nil, []error{lock.ErrNotApplied}},
		"majority full":   {[]error{nil, full, full}, []error{lock.ErrFull, lock.ErrNotApplied}, nil},
		"full, and doubt": {[]error{errEOF, full, full}, []error{lock.ErrFull}, []error{lock.ErrNotApplied}},
		"majority denied": {[]error{nil, denied, full}, []error{lock.ErrDenied, lock.ErrNotApplied}, []error{lock.ErrFull}},
		"minority denied": {[]error{lock.ErrNotApplied, denied, lock.ErrNotApplied}, []error{lock.ErrNotApplied}, []error{lock.ErrDenied}},
		"unsupported":     {[]error{errors.ErrUnsupported, errors.ErrUnsupported, nil}, []error{errors.ErrUnsupported}, []error{lock.ErrNotApplied}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []lock.Store
			for _, err := range tt.nodes {
				if err == nil {
					nodes = append(nodes, newScripted())
				} else {
					nodes = append(nodes, fails(err))
				}
			}
			_, err := lock.NewQuorum(nodes, lock.WithNodeTimeout(time.Minute)).Claim(t.Context(), key, lock.Claim{Token: "a", Lease: time.Minute})
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
