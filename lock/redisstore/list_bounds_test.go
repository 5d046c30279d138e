package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// inspections are the calls that an operator's tool makes, and which no Locker
// bounds.
var inspections = map[string]func(ctx context.Context, s *redisstore.Store) error{
	"List": func(ctx context.Context, s *redisstore.Store) error {
		for _, err := range s.List(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"Page": func(ctx context.Context, s *redisstore.Store) error {
		_, _, err := s.Page(ctx, "", 100, nil)
		return err
	},
}

// A reply to SCAN that is not a cursor and names ends the listing: its rest is unknown.
func TestScanRepliesOfAnotherType(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	s := overClient(t, p.Addr(), nil)
	take(t, s, keyFor(t), claim("a"))
	for _, reply := range []string{
		":5\r\n", "*0\r\n", "*1\r\n$1\r\n0\r\n", "*3\r\n$1\r\n0\r\n*0\r\n*0\r\n",
		"*2\r\n$1\r\n0\r\n$1\r\nx\r\n", "*2\r\n:0\r\n*0\r\n", "*2\r\n$-1\r\n*0\r\n", "*2\r\n$0\r\n\r\n*0\r\n",
	} {
		for call, inspect := range inspections {
			p.On(respproxy.Match{Name: "scan", Count: 1}, respproxy.Reply(reply))
			require.Equal(t, "answer", class(inspect(timeout(t, patience), s)), "%s after %q", call, reply)
		}
	}
}

// A client that waits for ever for an answer must not make an operator's tool wait for ever.
func TestInspectionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, start := range behindProxies {
		for call, inspect := range inspections {
			for silent, match := range map[string]respproxy.Match{
				"all": {}, "SCAN": {Name: "scan"}, "the values": {Name: "eval"}, "the nodes": {Name: "cluster"},
			} {
				if silent == "the nodes" && name == "client" {
					continue // it asks for none
				}
				t.Run(name+"/"+call+"/"+silent, func(t *testing.T) {
					t.Parallel()
					s, p := start(t, -1)
					take(t, s, keyFor(t), claim("a"))
					require.NoError(t, inspect(t.Context(), s))
					p.On(match, respproxy.Swallow(respproxy.Hang))
					for end, soon := range map[string]func(testing.TB, time.Duration) context.Context{"deadline": timeout, "cancel": canceledAfter} {
						returned := make(chan error, 1)
						go func() { returned <- inspect(soon(t, 100*time.Millisecond), s) }()
						select {
						case err := <-returned:
							require.ErrorIs(t, err, lock.ErrNotApplied, "it changes nothing")
						case <-timeout(t, 3*time.Second).Done():
							t.Errorf("%s: it does not end", end)
						}
					}
				})
			}
		}
	}
}

func canceledAfter(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	timer := time.AfterFunc(d, cancel)
	tb.Cleanup(func() { timer.Stop() })
	return ctx
}

// Not parallel: it looks at the heap.
func TestListHoldsOneReceiptAtATime(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "lists 100 MiB of receipts")
	const receipts, size = 100, 1 << 20
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	receipt := make([]byte, size)
	for i := range receipts {
		key := fmt.Sprint("once:", i)
		take(t, s, key, lock.Claim{Token: "a", Owner: "host", Lease: time.Minute, Linger: time.Minute})
		ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "a"}, receipt, time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
	}
	before := heapInUse()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // heapInUse collects
	kept := make([]lock.Entry, 0, receipts)
	most := int64(0)
	for e, err := range s.List(timeout(t, 10*time.Minute)) {
		require.NoError(t, err)
		require.Len(t, e.Receipt, size)
		e.Receipt = nil
		kept = append(kept, e)
		most = max(most, heapInUse()-before)
	}
	require.Len(t, kept, receipts)
	require.Less(t, most, int64(4*size), "nor does an entry without its receipt")
	runtime.KeepAlive(kept)
}

// heapInUse returns the heap in use after a collection.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A slot that is moving to another node is listed, with its entries on either node.
func TestListFollowsSlotsThatMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	s := redisstore.New(cluster.Client(t))
	take(t, s, "k", claim("a"))
	name := entryName("k")
	from, to := cluster.Nodes[0], cluster.Nodes[1]
	if cluster.Owner(t, name) != from {
		from, to = to, from
	}
	require.Len(t, listed(t, s), 1)
	slot := from.Do(t, "CLUSTER", "KEYSLOT", name)
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do(t, "CLUSTER", "MYID"))
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do(t, "CLUSTER", "MYID"))
	from.Do(t, "MIGRATE", "127.0.0.1", port(t, to.Addr()), name, 0, 5000)
	require.Len(t, listed(t, s), 1, "asked for at its new place")
	require.Len(t, pagedAll(t, s), 1)
	for _, node := range []*redistest.Server{to, from} {
		node.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.Do(t, "CLUSTER", "MYID"))
	}
	require.Len(t, listed(t, s), 1, "moved")
	require.Len(t, pagedAll(t, s), 1)
}

func pagedAll(t *testing.T, s *redisstore.Store) map[string]lock.Entry {
	t.Helper()
	all, _ := paged(t, s, 100, nil)
	return all
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

// A receipt that is read separately, just before it is yielded, can be gone at that time.
func TestReceiptThatEndsWhileItIsListedIsNotYielded(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	for _, key := range []string{"once:a", "once:b"} {
		take(t, s, key, lock.Claim{Token: "a", Owner: "host", Lease: time.Minute, Linger: time.Minute})
		ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "a"}, make([]byte, 64<<10), time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
	}
	others := map[string]string{"once:a": "once:b", "once:b": "once:a"}
	listed := 0
	for e, err := range s.List(timeout(t, patience)) {
		require.NoError(t, err)
		require.Equal(t, lock.Settled, e.State)
		listed++
		ok, err := s.Forget(t.Context(), others[e.Key], "a")
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Equal(t, 1, listed)
}
