package quorum_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

func inspectedFleet(size int) (fleet, []*inspected, *quorum.Store) {
	f := newFleet(size)
	nodes := make([]*inspected, size)
	stores := make([]lock.Store, size)
	for i, n := range f {
		nodes[i] = &inspected{Store: n}
		stores[i] = nodes[i]
	}
	return f, nodes, quorum.New(stores)
}

func listAll(t *testing.T, q lock.Inspector) (found map[string]string, err error) {
	t.Helper()
	found = make(map[string]string)
	for e, failure := range q.List(t.Context()) {
		if failure != nil {
			err = failure
			continue
		}
		require.NotContains(t, found, e.Key, "listed twice")
		found[e.Key] = e.State.String() + ":" + e.Token
	}
	return found, err
}

// List yields the result of Get for every key that some node has.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes, q := inspectedFleet(3)
		claim := func(key, token string, on ...int) {
			t.Helper()
			for _, i := range on {
				must.Entry(t)(nodes[i].Server().Claim(t.Context(), key, lock.Claim{Token: token, Lease: time.Hour}))
			}
		}
		claim("all", "a", 0, 1, 2)
		claim("majority", "b", 1, 2)
		claim("minority", "c", 2)
		claim("cool-down", "d", 0, 1)
		for _, i := range []int{0, 1} {
			must.Get(nodes[i].Server().Settle(t.Context(), "cool-down", lock.Claim{Token: "d"}, nil, time.Hour))(t)
		}
		want := map[string]string{"all": "held:a", "majority": "held:b", "cool-down": "settled:d"}
		found, err := listAll(t, q)
		require.NoError(t, err)
		require.Equal(t, want, found)

		nodes[2].err = errors.New("down")
		found, err = listAll(t, q)
		require.NoError(t, err, "the others have it all")
		require.Equal(t, want, found)
		nodes[1].err, nodes[1].after = errors.New("down too"), 1
		_, err = listAll(t, q)
		require.ErrorContains(t, err, "stores[1]: down too; stores[2]: down")

		for _, err := range q.List(t.Context()) {
			require.NoError(t, err)
			break // must not yield on
		}
		time.Sleep(time.Second)
	})
}

// foreign is a node with a value of another program under the name of an entry.
type foreign struct {
	*inspected

	key string
}

func (f foreign) List(context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) { yield(lock.Entry{Key: f.key}, errors.New("a foreign value")) }
}

// A value of another program on one node does not hide the entry that a majority has.
func TestListPastAForeignValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, nodes, _ := inspectedFleet(3)
		f.put(t, lock.Claim{Token: "a", Lease: time.Hour}, 1, 2)
		found := must.Get(listAll(t, quorum.New([]lock.Store{foreign{nodes[0], key}, nodes[1], nodes[2]})))(t)
		require.Equal(t, map[string]string{key: "held:a"}, found)
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, nodes, q := inspectedFleet(3)
		ctx := t.Context()
		f.put(t, lock.Claim{Token: "a", Lease: time.Hour}, 0, 1, 2)
		must.No(t)(q.Forget(ctx, key, "b"))
		nodes[1].err = errors.New("down")
		ok, err := q.Forget(ctx, key, "a")
		require.NoError(t, err, "what is held is free if a majority says so")
		require.True(t, ok)
		require.Equal(t, "free held:a free", f.states(t))
		nodes[0].err = errors.New("down")
		require.ErrorContains(t, must.Err(q.Forget(ctx, key, "a")), "stores[0]: down; stores[1]: down")

		time.Sleep(time.Second)
	})
}

// A read waits for the replies of all nodes, and calls a key free only if a majority does.
func TestGet(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions string
		held       map[int]string // by node
		want       string
	}{
		"free":                   {"uuu", nil, "free:"},
		"held":                   {"uuu", map[int]string{0: "a", 1: "a", 2: "a"}, "held:a"},
		"a minority's":           {"uuu", map[int]string{0: "a"}, "free:"},
		"a majority's":           {"uuu", map[int]string{0: "a", 1: "b", 2: "b"}, "held:b"},
		"a majority's, one down": {"udu", map[int]string{0: "a", 2: "a"}, "held:a"},
		"free, one down":         {"uud", nil, "free:"},
		"perhaps held":           {"uud", map[int]string{0: "a", 2: "a"}, "held:a"},
		"two down":               {"udd", map[int]string{0: "a", 1: "a"}, ""},
		"two silent":             {"ull", map[int]string{0: "a", 1: "a"}, ""},
		"two slow":               {"sus", map[int]string{0: "a", 1: "a"}, ""},
		"of five, two and one":   {"uuuuu", map[int]string{0: "a", 1: "a", 2: "b"}, "held:a"},
		"of five, two":           {"uuuuu", map[int]string{0: "a", 1: "a"}, "free:"},
		"of five, two, two down": {"uuudd", map[int]string{0: "a", 1: "a"}, "held:a"},
	} {
		fleetCase(t, name, len(tt.conditions), func(t *testing.T, f fleet) {
			for i, token := range tt.held {
				f.put(t, lock.Claim{Token: token, Lease: time.Hour}, i)
			}
			f.be(tt.conditions)
			e, err := f.quorum().Get(t.Context(), key)
			if tt.want == "" {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, tt.want, e.State.String()+":"+e.Token)
			}
			time.Sleep(time.Second)
		})
	}
}

// A list without the entries of one node would be incomplete.
func TestOverANodeThatIsNoInspector(t *testing.T) {
	t.Parallel()
	q := quorum.New([]lock.Store{memstore.New(), fault.New(), memstore.New()})
	found, err := listAll(t, q)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "stores[1]")
	require.Empty(t, found)
	require.ErrorIs(t, must.Err(q.Forget(t.Context(), key, "token")), errors.ErrUnsupported)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	bad := errors.New("misconfigured")
	down := fault.New().Every(fault.Refuse, fault.Get)
	for name, tt := range map[string]struct {
		nodes []lock.Store
		says  string
	}{
		"all well":         {[]lock.Store{&checked{servers: []string{"1"}}, &checked{servers: []string{"2"}}, memstore.New()}, ""},
		"one is not":       {[]lock.Store{&checked{err: bad}, &checked{}, &checked{}}, ""},
		"two are not":      {[]lock.Store{&checked{err: bad}, &checked{}, &checked{err: bad}}, "1 of 3 nodes are well, 2 have to be; stores[0]: misconfigured; stores[2]: misconfigured"},
		"two do not serve": {[]lock.Store{down, fault.New().Every(fault.Refuse, fault.Get), memstore.New()}, "stores[1]: lock: not applied"},
		"one server":       {[]lock.Store{&checked{servers: []string{"1"}}, &checked{}, &checked{servers: []string{"1"}}}, "stores[0] and stores[2] are one server, 1"},
		"a cluster":        {[]lock.Store{memstore.New(), &checked{servers: []string{"1", "2"}}, memstore.New()}, "stores[1] writes to 2 servers"},
		"one, though down": {[]lock.Store{&checked{err: bad, servers: []string{"1"}}, &checked{servers: []string{"1"}}, memstore.New()}, "are one server"},
	} {
		t.Run(name, func(t *testing.T) {
			err := quorum.New(tt.nodes, quorum.WithNodeTimeout(time.Minute)).Check(t.Context())
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// A readiness probe has about a second, and a quorum has to work with a node that is cut off.
func TestCheckDoesNotWaitForAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := fault.New().Every(fault.HangRequest, fault.Get)
		check := func(nodes ...lock.Store) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return quorum.New(nodes).Check(ctx)
		}
		began := time.Now()
		require.NoError(t, check(hangs, memstore.New(), memstore.New()))
		require.Equal(t, 10*nodeTimeout, time.Since(began))
		require.ErrorContains(t, check(hangs, &checked{servers: []string{"1"}}, &checked{servers: []string{"1"}}), "are one server")
		require.ErrorContains(t, check(hangs, memstore.New(), fault.New().Every(fault.HangRequest, fault.Get)), "1 of 3 nodes are well")
	})
}

// A quorum calls its nodes on its own goroutines: a node that panics counts as a
// node that does not answer.
func TestPanicsOfANodeAreUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []lock.Store
		for i := range 3 {
			s := fault.New()
			nodes = append(nodes, panicking{s, s.Server().(lock.Inspector), i == 0}) //nolint:forcetypeassert // the memory store is one
			if i == 0 {
				s.Every(func(context.Context, func() error) error { panic("a hook's") }, fault.Claim, fault.Renew, fault.Settle, fault.Release, fault.Get)
			}
		}
		q := quorum.New(nodes)
		c := lock.Claim{Token: "a", Lease: lease}
		require.Equal(t, "a", must.Entry(t)(q.Claim(t.Context(), key, c)).Token)
		must.Yes(t)(q.Renew(t.Context(), key, c))
		must.Entry(t)(q.Get(t.Context(), key))
		require.NoError(t, q.Check(t.Context()))
		must.Yes(t)(q.Forget(t.Context(), key, "a"))
		synctest.Wait()
	})
}
