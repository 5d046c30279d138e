package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/heap"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// listed returns the entries of List, by key.
func listed(t *testing.T, s *redisstore.Store) map[string]lock.Entry {
	t.Helper()
	all := map[string]lock.Entry{}
	for e, err := range s.List(timeout(t, 30*time.Second)) {
		require.NoError(t, err)
		require.NotContains(t, all, e.Key, "listed twice")
		all[e.Key] = e
	}
	return all
}

func TestListGoesOnPastForeignValues(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	take(t, s, "mine", claim("a"))
	srv.Do(t, "SET", "latch:lock:foreign", "hello")
	srv.Do(t, "SET", "latch:lock:long", strings.Repeat("hello", 10<<10)) // read in two steps
	srv.Do(t, "LPUSH", "latch:lock:list", "hello")                       // not a string, not listed
	srv.Do(t, "SET", "latch:lock:not%zzaname", "hello")
	srv.Do(t, "SET", "latch:elsewhere", "hello")
	keys := map[string]string{}
	for e, err := range s.List(t.Context()) {
		keys[e.Key] = class(err)
	}
	require.Equal(t, map[string]string{"mine": "", "foreign": "value", "long": "value"}, keys)
}

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
	for name, start := range ways(t) {
		for call, inspect := range inspections {
			for silent, match := range map[string]respproxy.Match{
				"all": {}, "SCAN": {Name: "scan"}, "the values": {Name: "eval"}, "the nodes": {Name: "cluster"},
			} {
				if silent == "the nodes" && name != "cluster client" {
					continue // the others ask for none
				}
				t.Run(name+"/"+call+"/"+silent, func(t *testing.T) {
					t.Parallel()
					to, p := start(t)
					s := to(-1)
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
		must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: "a"}, receipt, time.Hour))
	}
	before := heap.InUse()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // heap.InUse collects
	kept := make([]lock.Entry, 0, receipts)
	most := int64(0)
	for e, err := range s.List(timeout(t, 10*time.Minute)) {
		require.NoError(t, err)
		require.Len(t, e.Receipt, size)
		e.Receipt = nil
		kept = append(kept, e)
		most = max(most, heap.InUse()-before)
	}
	require.Len(t, kept, receipts)
	require.Less(t, most, int64(4*size), "nor does an entry without its receipt")
	runtime.KeepAlive(kept)
}

// A slot that is moving to another node is listed, with its entries on either node.
func TestListFollowsSlotsThatMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	s := redisstore.New(redistest.ClusterClient(t, cluster))
	take(t, s, "k", claim("a"))
	name := entryName("k")
	from, to := ownerAndOther(t, cluster, name)
	require.Len(t, listed(t, s), 1)
	beginMove(t, cluster, name, from, to)
	from.Do(t, "MIGRATE", "127.0.0.1", to.Port(), name, 0, 5000)
	require.Len(t, listed(t, s), 1, "asked for at its new place")
	require.Len(t, pagedAll(t, s), 1)
	endMove(t, cluster, name, from, to)
	require.Len(t, listed(t, s), 1, "moved")
	require.Len(t, pagedAll(t, s), 1)
}

func pagedAll(t *testing.T, s *redisstore.Store) map[string]lock.Entry {
	t.Helper()
	all, _ := paged(t, s, 100, nil)
	return all
}

// A receipt that is read separately, just before it is yielded, can be gone at that time.
func TestReceiptThatEndsWhileItIsListedIsNotYielded(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	for _, key := range []string{"once:a", "once:b"} {
		take(t, s, key, lock.Claim{Token: "a", Owner: "host", Lease: time.Minute, Linger: time.Minute})
		must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: "a"}, make([]byte, 64<<10), time.Hour))
	}
	others := map[string]string{"once:a": "once:b", "once:b": "once:a"}
	listed := 0
	for e, err := range s.List(timeout(t, patience)) {
		require.NoError(t, err)
		require.Equal(t, lock.Settled, e.State)
		listed++
		must.Yes(t)(s.Forget(t.Context(), others[e.Key], "a"))
	}
	require.Equal(t, 1, listed)
}

// paged returns the entries of all pages, by key, and the size of the largest page.
func paged(t *testing.T, s *redisstore.Store, limit int, match func(key string) bool) (all map[string]lock.Entry, most int) {
	t.Helper()
	all = map[string]lock.Entry{}
	for cursor, n := "", 0; ; n++ {
		require.Less(t, n, 100_000, "it does not end")
		page, next, err := s.Page(timeout(t, patience), cursor, limit, match)
		require.NoError(t, err)
		for _, e := range page {
			all[e.Key] = e
		}
		most = max(most, len(page))
		if next == "" {
			return all, most
		}
		cursor = next
	}
}

func TestPages(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "reads 500 entries page by page")
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	long := strings.Repeat("x", 300)
	keys := []string{"user=42", "a\nb", "\xff", "*", long}
	for i := range 500 {
		keys = append(keys, fmt.Sprint("order=", i))
	}
	for _, key := range keys {
		take(t, s, key, claim("a"))
	}
	receipt := []byte(strings.Repeat("r", 1<<20))
	take(t, s, "once:settled", lock.Claim{Token: "b", Owner: "host", Fingerprint: make([]byte, 33), Lease: time.Minute, Linger: time.Minute})
	must.Yes(t)(s.Settle(t.Context(), "once:settled", lock.Claim{Token: "b"}, receipt, time.Minute))
	require.Len(t, listed(t, s), len(keys)+1)
	for _, err := range s.List(t.Context()) {
		require.NoError(t, err)
		break // must not yield on
	}

	srv.Do(t, "SET", "latch:lock:foreign", "hello")
	srv.Do(t, "SET", "elsewhere", "hello")
	all, most := paged(t, s, 50, nil)
	require.Len(t, all, len(keys)+2)
	require.Less(t, most, 150, "SCAN may return a little more than it is asked for")
	for _, key := range keys {
		require.Equal(t, lock.Held, all[key].State, "%q", key)
	}
	require.Equal(t, lock.Entry{Key: "foreign"}, all["foreign"])
	settled := all["once:settled"]
	require.Equal(t, lock.Settled, settled.State)
	require.Equal(t, "host", settled.Owner)
	require.Empty(t, settled.Receipt)

	found, _ := paged(t, s, 50, func(key string) bool { return strings.Contains(key, "=42") })
	require.Len(t, found, 12, "user=42, order=42 and order=420 to 429")
	found, _ = paged(t, s, 50, func(key string) bool { return key == long })
	require.Len(t, found, 1)

	for _, cursor := range []string{"x", "0", "-1:0", "0:x", "0:-1", ":", "99999999999999999999:0"} {
		_, _, err := s.Page(t.Context(), cursor, 50, nil)
		require.ErrorIs(t, err, lock.ErrNotApplied, cursor)
	}
	page, next, err := s.Page(t.Context(), "7:0", 50, nil)
	require.NoError(t, err)
	require.Empty(t, page)
	require.Empty(t, next)

	srv.Kill()
	_, _, err = s.Page(timeout(t, patience), "", 50, nil)
	require.Error(t, err)
	failures := 0
	for e, err := range s.List(timeout(t, patience)) {
		require.Error(t, err)
		require.Zero(t, e)
		failures++
	}
	require.Equal(t, 1, failures)
}

// One of the names that are read in one round trip may be gone, at any position.
func TestEntryThatEndsWhileItIsListedHidesNoOther(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	for i := range 10 {
		take(t, s, fmt.Sprint("user=", i), claim("a"))
	}
	for left := 9; left >= 7; left-- {
		gone := map[int]int{9: 0, 8: 4, 7: 7}[left] // the first, one in the middle, the last
		seen := 0
		page, _, err := s.Page(timeout(t, patience), "", 1000, func(key string) bool {
			if seen == gone {
				release(t, s, key, "a")
			}
			seen++
			return true
		})
		require.NoError(t, err)
		require.Len(t, page, left)
	}
}
