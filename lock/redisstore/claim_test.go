package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestPlainClaimIsOneCommand(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), nil)
	key := keyFor(t)

	require.Equal(t, lock.Entry{State: lock.Held, Token: "a", Attempt: 1, Left: time.Minute}, take(t, s, key, claim("a")))
	take(t, s, key, claim("a"))
	e := must.Entry(t)(s.Claim(t.Context(), key, claim("b")))
	require.Equal(t, lock.Entry{State: lock.Held, Token: "a", Attempt: 1}, e)
	require.Equal(t, 3, p.Commands("set"))
	require.Zero(t, p.Commands("eval")+p.Commands("evalsha"))

	lingering := claim("c")
	lingering.Linger = time.Minute
	take(t, s, key+"&linger", lingering)
	e = must.Entry(t)(s.Claim(t.Context(), key+"&linger", claim("b")))
	require.InDelta(t, time.Minute, e.Left, float64(5*time.Second))
	require.Equal(t, 5, p.Commands("set"))
}

// A server before Redis 7 is asked once whether it knows SET with NX and GET.
func TestServersWithoutSetNXGetClaimInLua(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	old := p.On(respproxy.Match{Name: "set"}, respproxy.ReplyError("ERR syntax error"))
	s := overClient(t, p.Addr(), nil)
	take(t, s, keyFor(t), claim("a"))
	take(t, s, keyFor(t), claim("a"))
	require.Equal(t, 1, old.Hits())
	require.NoError(t, s.Check(t.Context()))
}

func TestExpiredBetweenTheTwoReadsIsFree(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = patience })
	key := keyFor(t)
	lingering := claim("a")
	lingering.Linger = time.Minute
	take(t, s, key, lingering)

	second := p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.Hold())
	go func() {
		second.Wait(t, 1)
		srv.Do(t, "DEL", nameOf(t))
		second.Remove()
		second.Deliver(t)
	}()
	require.Zero(t, must.Entry(t)(s.Claim(t.Context(), key, claim("b"))))
}

// An entry whose expiry an operator has removed stays held, until its holder renews or ends it.
func TestEntryWithoutAnExpiryStaysHeld(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	s, key := open(t, srv.URL()), keyFor(t)
	c := lock.Claim{Token: "a", Lease: 30 * time.Second, Linger: time.Minute}
	take(t, s, key, c)
	srv.Do(t, "PERSIST", nameOf(t))
	require.Equal(t, lock.Held, must.Entry(t)(s.Get(t.Context(), key)).State)
	other := claim("b")
	other.Replaces = "a"
	require.Equal(t, "a", must.Entry(t)(s.Claim(t.Context(), key, other)).Token)
	c.Linger = 0
	must.Yes(t)(s.Renew(t.Context(), key, c))
	require.InDelta(t, 90_000, srv.Do(t, "PTTL", nameOf(t)), 5000, "with the linger of the entry")
}

func TestDurationsBelowAMillisecond(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).URL())
	key := keyFor(t)
	take(t, s, key, lock.Claim{Token: "a", Lease: time.Microsecond, Linger: time.Microsecond})
	take(t, s, key+"&2", claim("a"))
	must.Yes(t)(s.Renew(t.Context(), key+"&2", lock.Claim{Token: "a", Lease: time.Nanosecond, Linger: 1}))
	must.Yes(t)(s.Settle(t.Context(), key+"&2", lock.Claim{Token: "a"}, nil, time.Nanosecond))
	require.Eventually(t, func() bool { return must.Entry(t)(s.Get(t.Context(), key+"&2")).State == lock.Free }, 10*time.Second, time.Millisecond)
}

// A settlement whose time is over before its script ends leaves no receipt without an expiry. Its
// twin is the script with KEEPTTL. Since Redis 7.2 a server's clock stands still for a script.
func TestSettlementThatIsOverAtOnceIsNotKeptForEver(t *testing.T) {
	t.Parallel()
	script := must.Get(os.ReadFile("lua/settle.lua"))(t)
	srv := redistest.Start(t)
	keptForEver := func(script string) any {
		return srv.Do(t, "EVAL", "local settle = function()\n"+script+"\nend\nlocal kept = 0\nfor _ = 1, ARGV[5] do\n"+
			"redis.call('SET', KEYS[1], 'H1\\1a', 'PX', 30000)\nsettle()\n"+
			"if redis.call('PTTL', KEYS[1]) == -1 then kept = kept + 1 end\nend\nreturn kept",
			1, "k", "a", 1, "receipt", "", 20_000)
	}
	twin := strings.Replace(string(script), "'PX', ARGV[2]", "'KEEPTTL'", 1)
	require.NotEqual(t, string(script), twin)
	goesOn := srv.Do(t, "EVAL", "local t = redis.call('TIME')[2] for _ = 1, 1e6 do end return redis.call('TIME')[2] ~= t", 0)
	for found := any(int64(0)); found == int64(0); {
		require.Zero(t, keptForEver(string(script)))
		if goesOn == nil {
			return
		}
		found = keptForEver(twin)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).URL())
	longest := strings.Repeat("\xff", 255)
	take(t, s, keyFor(t), claim(longest))
	release(t, s, keyFor(t), longest)
	for _, bad := range []string{"", longest + "x"} {
		must.No(t)(s.Release(t.Context(), keyFor(t), lock.Claim{Token: bad}))
		_, err := s.Claim(t.Context(), keyFor(t), claim(bad))
		requireNotApplied(t, err, "argument")
	}
}

func TestForeignValuesFailClosed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t) // or others would list them
	s := open(t, srv.URL())
	for name, foreign := range map[string]string{
		"empty":          "",
		"other program":  "hello",
		"newer format":   "H2\x01a",
		"truncated":      "H1\x05ab",
		"digits missing": "H1\x01aXXXXXXXXXXXXX0000000000000000\x01\x00\x00\x00",
		"fake stub":      "F2\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := keyFor(t)
			srv.Do(t, "SET", nameOf(t), foreign)
			replacing := claim("a")
			replacing.Replaces = "b"
			for _, c := range []lock.Claim{claim("a"), fenced("a"), replacing} {
				_, err := s.Claim(timeout(t, patience), key, c)
				requireNotApplied(t, err, "value")
				require.ErrorContains(t, err, "WithPrefix")
			}
			_, err := s.Get(t.Context(), key)
			requireNotApplied(t, err, "value")
			requireUnchangedBy(t, s, key, "b")
			require.Equal(t, foreign, srv.Do(t, "GET", nameOf(t)))
		})
	}
}

// requireUnchangedBy tries all calls that change the entry of a token.
func requireUnchangedBy(t *testing.T, s *redisstore.Store, key, token string) {
	t.Helper()
	must.No(t)(s.Renew(t.Context(), key, claim(token)))
	must.No(t)(s.Settle(t.Context(), key, lock.Claim{Token: token}, []byte("x"), time.Minute))
	must.No(t)(s.Release(t.Context(), key, lock.Claim{Token: token}))
	must.No(t)(s.Forget(t.Context(), key, token))
}

func fiveKeys(prefix string) []string {
	keys := make([]string, 5)
	for i := range keys {
		keys[i] = lock.Key(prefix, fmt.Sprint(i))
	}
	return keys
}

func setLocker(t *testing.T, s lock.Store) *lock.Locker {
	t.Helper()
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(patience), lock.WithLease(3*patience))
	t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
	return l
}

// The claim of a set is one command, however many keys it has. Its releases are sent at the same time.
func TestCommandsOfASet(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	s := overClient(t, p.Addr(), nil)
	l, other := setLocker(t, s), setLocker(t, s)
	keys := fiveKeys("item")
	sent := p.On(respproxy.Match{Name: "set|get|eval|evalsha|delifeq|delex"}, respproxy.Action{})
	// The fewest of some rounds: a store sends releases again whose connection stalls, as on a busy machine.
	fewest := func(l *lock.Locker, want error) int {
		least := math.MaxInt
		for range 10 {
			before := sent.Hits()
			require.ErrorIs(t, l.DoAll(t.Context(), keys, func(context.Context) error { return nil }), want)
			least = min(least, sent.Hits()-before)
		}
		return least
	}
	for _, l := range []*lock.Locker{l, other} {
		require.Equal(t, 1+5, fewest(l, nil))
	}
	held := must.Get(other.AcquireAll(t.Context(), keys))(t)
	require.Equal(t, 1, fewest(l, lock.ErrHeld))
	require.NoError(t, held.Release(t.Context()))
}

// The reply to the claim of a set is lost on the wire, and the tokens recover it.
func TestLostReplyToTheClaimOfASet(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	l := setLocker(t, overClient(t, p.Addr(), nil))
	keys := fiveKeys(t.Name())
	require.NoError(t, l.DoAll(t.Context(), keys, func(context.Context) error { return nil }))
	for range 3 {
		lost := p.On(respproxy.Match{Name: "evalsha", Count: 1}, respproxy.Swallow(respproxy.Close))
		require.NoError(t, l.DoAll(t.Context(), keys, func(ctx context.Context) error { return ctx.Err() }))
		require.Equal(t, 1, lost.Hits())
	}
}

// The fences of a key go on growing when a set without fences has it in between.
func TestSetKeepsTheFenceOfAKey(t *testing.T) {
	t.Parallel()
	s := overClient(t, redistest.Start(t).Addr(), nil)
	keys := fiveKeys(t.Name())
	before := take(t, s, keys[0], fenced("fenced")).Fence
	release(t, s, keys[0], "fenced")
	claims := make([]lock.Claim, len(keys))
	for i := range claims {
		claims[i] = claim(fmt.Sprint("set", i))
	}
	require.Zero(t, must.Entry(t)(s.ClaimSet(t.Context(), keys, claims)))
	require.Equal(t, before, must.Entry(t)(s.Get(t.Context(), keys[0])).Fence)
	for i, key := range keys {
		release(t, s, key, claims[i].Token)
	}
	require.Greater(t, take(t, s, keys[0], fenced("next")).Fence, before)
}

// A server without memory refuses a set, names the limit, and serves the release of an earlier set.
func TestSetOfAServerWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := setLocker(t, overClient(t, server.Addr(), nil))
	keys, later := fiveKeys("held"), fiveKeys("later")
	s := must.Get(l.AcquireAll(t.Context(), keys))(t)
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	err := l.DoAll(t.Context(), later, func(context.Context) error { return nil })
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrUnknown)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "raise maxmemory")
	require.NoError(t, s.Release(t.Context()))
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, l.DoAll(t.Context(), append(keys, later...), func(context.Context) error { return nil }))
}

// A Cluster refuses a script on several keys (CROSSSLOT), so sets are claimed in order. The server is asked once if
// the client does not say what it is: a plain client of a server that has all slots, as the one address of a managed
// Cluster, and a cluster client in a wrapper.
func TestSetOnACluster(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		masters, asked int
		client         func(t *testing.T, c *redistest.Cluster, addrs []string) redis.UniversalClient
	}{
		"a plain client": {1, 1, func(t *testing.T, _ *redistest.Cluster, addrs []string) redis.UniversalClient {
			return clientOf(t, &redis.Options{Addr: addrs[0]})
		}},
		"a wrapped cluster client": {3, 1, func(t *testing.T, c *redistest.Cluster, _ []string) redis.UniversalClient {
			return struct{ redis.UniversalClient }{redistest.ClusterClient(t, c)}
		}},
		"a cluster client": {3, 0, func(t *testing.T, c *redistest.Cluster, _ []string) redis.UniversalClient {
			return redistest.ClusterClient(t, c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []*respproxy.Rule
			var addrs []string
			c := redistest.StartCluster(t, tt.masters, func(_ int, addr string) int {
				p := respproxy.Start(t, addr)
				asked = append(asked, p.On(respproxy.Match{Func: onSeveralKeys}, respproxy.Action{}))
				addrs = append(addrs, p.Addr())
				return p.Port()
			})
			s := redisstore.New(tt.client(t, c, addrs))
			l, other := setLocker(t, s), setLocker(t, s)
			keys := fiveKeys(t.Name())
			if tt.asked == 0 {
				_, err := s.ClaimSet(t.Context(), keys, make([]lock.Claim, len(keys)))
				require.ErrorIs(t, err, errors.ErrUnsupported)
			}
			for range 3 {
				require.NoError(t, l.DoAll(t.Context(), keys, func(ctx context.Context) error {
					require.ErrorIs(t, other.DoAll(ctx, keys[2:], nil), lock.ErrHeld)
					return ctx.Err()
				}))
			}
			require.NoError(t, other.DoAll(t.Context(), keys, func(context.Context) error { return nil }))
			require.Empty(t, c.Keys(t))
			hits := 0
			for _, rule := range asked {
				hits += rule.Hits()
			}
			require.Equal(t, tt.asked, hits)
		})
	}
}

// onSeveralKeys reports whether a command is a script on more than one key.
func onSeveralKeys(args [][]byte) bool {
	return len(args) > 2 && (string(args[0]) == "evalsha" || string(args[0]) == "eval") && string(args[2]) != "1"
}

// shared returns the address of a twemproxy over two servers. Commands that it does not know end a connection, so a
// second proxy answers them with an error, as other proxies do.
func shared(t *testing.T) (addr string) {
	t.Helper()
	p := respproxy.Start(t, redistest.StartTwemproxy(t, redistest.Start(t), redistest.Start(t)))
	p.On(respproxy.Match{Name: "hello|client|info|scan|delifeq|delex"}, respproxy.ReplyError("ERR unsupported command"))
	return p.Addr()
}

// A proxy sends a command to the server of its first key. A set that is claimed at once then has a key that
// another set has, too. Claimed in order, it has not.
func TestSetBehindAProxyThatSharesKeys(t *testing.T) {
	t.Parallel()
	addr := shared(t)
	for name, tt := range map[string]struct {
		opts []redisstore.Option
		safe bool
	}{
		"claimed at once":  {nil, false},
		"claimed in order": {[]redisstore.Option{redisstore.WithoutPluralClaims()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, &redis.Options{Addr: addr})
			s := redisstore.New(client, tt.opts...)
			l, other := setLocker(t, s), setLocker(t, s)
			keys := fiveKeys(name)
			set, err := l.AcquireAll(t.Context(), keys)
			require.NoError(t, err)
			twice := 0 // keys with two holders
			for _, key := range keys {
				if err := other.Do(t.Context(), key, func(context.Context) error { return nil }); err == nil {
					twice++
				} else {
					require.ErrorIs(t, err, lock.ErrHeld)
				}
			}
			t.Logf("%d keys of %d had two holders", twice, len(keys))
			require.Equal(t, tt.safe, twice == 0)
			if err = set.Release(t.Context()); !tt.safe {
				require.ErrorIs(t, err, lock.ErrLost, "the releases do not find the entries")
				return
			}
			require.NoError(t, err)
			_, err = s.ClaimSet(t.Context(), keys, make([]lock.Claim, len(keys)))
			require.ErrorIs(t, err, errors.ErrUnsupported)
		})
	}
}

func TestCheckFindsAProxyThatSharesKeys(t *testing.T) {
	t.Parallel()
	client := clientOf(t, &redis.Options{Addr: shared(t)})
	s, inOrder := redisstore.New(client), redisstore.New(client, redisstore.WithoutPluralClaims())
	require.Eventually(t, func() bool { // eight random keys may be on one server
		err := inOrder.Check(timeout(t, patience))
		require.ErrorContains(t, err, "unsupported command") // INFO and SCAN
		require.NotContains(t, err.Error(), "SETS")
		return strings.Contains(s.Check(timeout(t, patience)).Error(), "redisstore: SETS: a script on several keys")
	}, patience, time.Millisecond)
}
