package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// neighbors claims and releases keys of its own over s until stop is called, which returns how many claims
// were granted. A reply to the command of another caller is an error.
func neighbors(t *testing.T, s *redisstore.Store, n int) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var granted atomic.Int32
	for i := range n {
		key := member(t, i)
		all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				token := fmt.Sprint(i, ".", j)
				e, err := s.Claim(timeout(t, patience), key, claim(token))
				if err != nil {
					continue // released by a later claim of the token's holder, or not taken
				}
				assert.True(t, strings.HasPrefix(e.Token, fmt.Sprint(i, ".")), "caller %d has got the reply to another one: %q", i, e.Token)
				if e.Token == token {
					granted.Add(1)
				}
				_, _ = s.Forget(timeout(t, patience), key, e.Token)
			}
		})
	}
	return func() int {
		cancel()
		all.Wait()
		return int(granted.Load())
	}
}

// A connection may end after every byte of a command, which was not applied then, and of a reply, which has the
// entry of another holder. Either is unknown, and no other caller gets a wrong reply.
func TestConnectionsThatAreCut(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "cuts a connection after each byte")
	t.Parallel()
	for name, tt := range map[string]struct {
		bytes  int
		cut    func(n int) respproxy.Action
		holder string
	}{"in a command": {140, respproxy.CutCommand, ""}, "in a reply": {64, respproxy.CutReply, "a"}} {
		parallel.Run(t, name, func(t *testing.T) {
			p := respproxy.Start(t, redistest.Start(t).Addr())
			s := open(t, p.URL())
			stop := neighbors(t, s, 3)
			for n := range tt.bytes {
				key := fmt.Sprintf("cut=%d", n)
				if tt.holder != "" {
					take(t, s, key, claim(tt.holder))
				}
				cut := p.On(respproxy.Match{Name: "set", Key: entryName(key), Count: 1}, tt.cut(n))
				_, err := s.Claim(timeout(t, patience), key, claim("tok"))
				cut.Wait(t, 1)
				requireUnknown(t, err, "connection")
				require.Equal(t, tt.holder, must.Entry(t)(s.Get(timeout(t, patience), key)).Token)
			}
			require.Positive(t, stop())
		})
	}
}

// A reply that does not fit the command ends as unknown, and the next command gets its own.
func TestRepliesOfAnotherType(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	s := open(t, p.URL())
	for _, reply := range []string{
		":5\r\n", "*0\r\n", "*1\r\n$-1\r\n", // of another type
		"_\r\n", ">1\r\n+x\r\n",
	} {
		odd := p.On(respproxy.Match{Name: "set", Key: nameOf(t), Count: 1}, respproxy.Reply(reply))
		_, err := s.Claim(timeout(t, patience), keyFor(t), claim("a"))
		requireUnknown(t, err, "answer")
		odd.Wait(t, 1)
		take(t, s, keyFor(t), claim("a"))
		release(t, s, keyFor(t), "a")
	}
}

// Nothing is left of a store that was closed, and little of many that were not used.
func TestStoresLeaveNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := redistest.Client(t, srv)
	connections := func() int {
		text, _ := srv.Do(t, "CLIENT", "LIST", "TYPE", "normal").(string)
		return strings.Count(text, "\n")
	}
	before := connections()
	for range 10_000 {
		_ = redisstore.New(client)
	}
	require.LessOrEqual(t, connections(), before+1)
	s := redisstore.New(client)
	stop := neighbors(t, s, 100)
	require.Eventually(t, func() bool { return connections() > before }, patience, time.Millisecond)
	stop()
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return connections() <= before+1 }, patience, 5*time.Millisecond)
}

// The behaviour of go-redis' own autopipeliner in the same case.
func TestAutoPipelinerSendsWhatWasAbandoned(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "checks go-redis alone")
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	client := clientOf(t, &redis.Options{Addr: p.Addr(), ReadTimeout: 3 * time.Second, MaxRetries: -1})
	pipeliner := must.Get(client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{MaxConcurrentBatches: 1}))(t)
	require.NoError(t, pipeliner.Ping(t.Context()).Err())
	p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Drop(respproxy.Hang)) // one connection dies, silently
	stalls := pipeliner.SetNX(t.Context(), keyFor(t)+"&stalls", "tok", time.Minute)
	require.Eventually(t, func() bool { return p.Commands("set") == 0 && pipeliner.Len() == 0 }, patience, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	abandoned := pipeliner.SetNX(ctx, keyFor(t), "tok", time.Minute)
	cancel()
	require.Empty(t, srv.Keys(t, keyFor(t)))
	require.Error(t, stalls.Err())
	_ = abandoned.Err()
	require.Len(t, srv.Keys(t, keyFor(t)), 1, "seconds after its caller has gone")
}

// member returns the i-th of several keys of a test.
func member(t *testing.T, i int) string {
	t.Helper()
	return fmt.Sprintf("%s&%d", keyFor(t), i)
}

// One dead connection and a hundred lockers: all get their lease. The lockers
// whose first try used the connection get it by a second try.
func TestDeadConnectionUnderLockers(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for a dead connection")
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(patience), lock.WithLease(3*patience))
	dead := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Drop(respproxy.Hang))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			e, err := l.Acquire(t.Context(), member(t, i))
			if assert.NoError(t, err) {
				assert.NoError(t, e.Release(t.Context()))
			}
		})
	}
	all.Wait()
	dead.Wait(t, 1)
	require.NoError(t, l.Close(timeout(t, 3*patience))) // the dead connection is given up after a budget and a read timeout
	require.Empty(t, srv.Keys(t))
}

// A node of a Cluster does not answer. Callers of the other node do not wait for it.
func TestStalledNodeOfACluster(t *testing.T) {
	t.Parallel()
	var proxies []*respproxy.Proxy
	cluster := redistest.StartCluster(t, 2, func(_ int, addr string) int {
		proxies = append(proxies, respproxy.Start(t, addr))
		return proxies[len(proxies)-1].Port()
	})
	s := redisstore.New(redistest.ClusterClient(t, cluster))
	nodes := make([][]string, 2) // keys by node
	for i := range 40 {
		key := member(t, i)
		take(t, s, key, claim("tok"))
		n := slices.Index(cluster.Nodes, cluster.Owner(t, entryName(key)))
		nodes[n] = append(nodes[n], key)
	}
	proxies[0].Freeze()
	var frozen, others sync.WaitGroup
	for _, key := range nodes[0] {
		frozen.Go(func() {
			_, err := s.Claim(timeout(t, time.Second), key, claim("tok"))
			assert.Error(t, err, "answered by a node that is frozen")
		})
	}
	for _, key := range nodes[1] {
		others.Go(func() {
			for range 5 {
				_, err := s.Claim(timeout(t, 20*time.Second), key, claim("tok"))
				assert.NoError(t, err)
			}
		})
	}
	others.Wait()
	frozen.Wait()
	proxies[0].Thaw()
}

// A server that does not answer gets no more connections than a store may have.
func TestConnectionsToASilentServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	var made atomic.Int32
	s := overClient(t, p.Addr(), func(o *redis.Options) {
		o.ReadTimeout = 20 * time.Second
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			made.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	take(t, s, keyFor(t), claim("tok"))
	p.Freeze()
	var certain atomic.Int32
	var calls sync.WaitGroup
	for i := range 500 {
		calls.Go(func() {
			_, err := s.Claim(timeout(t, 300*time.Millisecond), member(t, i), claim("tok"))
			if errors.Is(err, lock.ErrNotApplied) {
				certain.Add(1)
			}
		})
	}
	calls.Wait()
	const maxConnections, window = 16, 64
	require.LessOrEqual(t, made.Load(), int32(maxConnections))
	require.GreaterOrEqual(t, int(certain.Load()), 500-window-2, "the others were not sent")
	p.Thaw()
}
