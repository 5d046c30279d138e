package redisstore_test

import (
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
