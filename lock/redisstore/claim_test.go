package redisstore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
)

func TestPlainClaimIsOneCommand(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), nil)
	key := keyFor(t)

	require.Equal(t, lock.Entry{State: lock.Held, Token: "a", Attempt: 1, Left: time.Minute}, take(t, s, key, claim("a")))
	take(t, s, key, claim("a"))
	e, err := s.Claim(t.Context(), key, claim("b"))
	require.NoError(t, err)
	require.Equal(t, lock.Entry{State: lock.Held, Token: "a", Attempt: 1}, e)
	require.Equal(t, 3, p.Commands("set"))
	require.Zero(t, p.Commands("eval")+p.Commands("evalsha"))

	lingering := claim("c")
	lingering.Linger = time.Minute
	take(t, s, key+"&linger", lingering)
	e, err = s.Claim(t.Context(), key+"&linger", claim("b"))
	require.NoError(t, err)
	require.InDelta(t, time.Minute, e.Left, float64(5*time.Second))
	require.Equal(t, 5, p.Commands("set"))
}

func TestServersWithoutSetNXGetClaimInLua(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	old := p.On(respproxy.Match{Name: "set"}, respproxy.ReplyError("ERR syntax error"))
	s := overClient(t, p.Addr(), nil)
	key := keyFor(t)

	take(t, s, key, claim("a"))
	take(t, s, key, claim("a"))
	e, err := s.Claim(t.Context(), key, claim("b"))
	require.NoError(t, err)
	require.Equal(t, "a", e.Token)
	ok, err := s.Release(t.Context(), key, lock.Claim{Token: "a"})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1, old.Hits(), "the refusal is remembered")

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
	got := make(chan lock.Entry, 1)
	go func() {
		e, err := s.Claim(t.Context(), key, claim("b"))
		if err == nil {
			got <- e
		}
		close(got)
	}()
	second.Wait(t, 1)
	srv.Do(t, "DEL", nameOf(t))
	second.Deliver(t)
	second.Remove()
	p.Clear()
	e, ok := <-got
	require.True(t, ok)
	require.Equal(t, lock.Entry{}, e)
}

func TestLapsedIsJudgedByTheServerAndTheStoredLinger(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	s := open(t, srv.URL())

	for _, tt := range []struct {
		name   string
		linger time.Duration
		pttl   int64 // the time left; -1 persisted
		want   lock.State
	}{
		{"lease runs", time.Minute, 70_000, lock.Held},
		{"linger runs", time.Minute, 59_000, lock.Abandoned},
		{"no linger", 0, 10_000, lock.Held},
		{"persisted", time.Minute, -1, lock.Held},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			key := keyFor(t)
			c := claim("a")
			c.Linger = tt.linger
			take(t, s, key, c)
			if tt.pttl < 0 {
				srv.Do(t, "PERSIST", nameOf(t))
			} else {
				srv.Do(t, "PEXPIRE", nameOf(t), tt.pttl)
			}
			e, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, tt.want, e.State)

			// The linger of a claimant that asks for another one changes nothing.
			other := claim("b")
			other.Linger, other.Replaces = time.Hour, "a"
			e, err = s.Claim(t.Context(), key, other)
			require.NoError(t, err)
			if tt.want == lock.Abandoned {
				require.Equal(t, "b", e.Token, "taken over")
			} else {
				require.Equal(t, "a", e.Token)
			}
		})
	}
}

func TestRenewUsesTheStoredLinger(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	s := open(t, srv.URL())
	key := keyFor(t)
	c := lock.Claim{Token: "a", Lease: 30 * time.Second, Linger: time.Minute}
	take(t, s, key, c)

	renew := func(lease, linger time.Duration) (pttl int64) {
		t.Helper()
		ok, err := s.Renew(t.Context(), key, lock.Claim{Token: "a", Lease: lease, Linger: linger})
		require.NoError(t, err)
		require.True(t, ok)
		left, _ := srv.Do(t, "PTTL", nameOf(t)).(int64)
		return left
	}
	require.InDelta(t, 90_000, renew(30*time.Second, 0), 5000, "the linger is not shortened")
	require.InDelta(t, 90_000, renew(time.Second, time.Minute), 5000, "the lease is not shortened")
	require.InDelta(t, 150_000, renew(30*time.Second, 2*time.Minute), 5000, "the linger grows, the lease stays")
	e, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)
	require.InDelta(t, 30*time.Second, e.Left, float64(5*time.Second))

	srv.Do(t, "PERSIST", nameOf(t))
	require.InDelta(t, 150_000, renew(30*time.Second, 0), 5000, "an expiry that was removed comes back")
}

func TestDurationsBelowAMillisecond(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).URL())
	key := keyFor(t)
	take(t, s, key, lock.Claim{Token: "a", Lease: time.Microsecond, Linger: time.Microsecond})
	take(t, s, key+"&2", claim("a"))
	ok, err := s.Renew(t.Context(), key+"&2", lock.Claim{Token: "a", Lease: time.Nanosecond, Linger: 1})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = s.Settle(t.Context(), key+"&2", lock.Claim{Token: "a"}, nil, time.Nanosecond)
	require.NoError(t, err)
	require.True(t, ok)
	require.Eventually(t, func() bool {
		e, err := s.Get(t.Context(), key+"&2")
		return err == nil && e.State == lock.Free
	}, 10*time.Second, time.Millisecond)
}

// A settlement whose time is over before its script ends leaves no receipt without an expiry. Its
// twin is the script with KEEPTTL. Since Redis 7.2 a server's clock stands still for a script.
func TestSettlementThatIsOverAtOnceIsNotKeptForEver(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("lua/settle.lua")
	require.NoError(t, err)
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
	key := keyFor(t)
	longest := strings.Repeat("\xff", 255)
	take(t, s, key, claim(longest))
	for _, other := range []string{longest[1:], longest + "x", "", "\xff"} {
		ok, err := s.Release(t.Context(), key, lock.Claim{Token: other})
		require.NoError(t, err)
		require.False(t, ok)
	}
	ok, err := s.Release(t.Context(), key, lock.Claim{Token: longest})
	require.NoError(t, err)
	require.True(t, ok)

	for _, bad := range []string{"", longest + "x"} {
		_, err := s.Claim(t.Context(), key, claim(bad))
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
			fenced := claim("a")
			fenced.Fenced = true
			replacing := claim("a")
			replacing.Replaces = "b"
			for _, c := range []lock.Claim{claim("a"), fenced, replacing} {
				_, err := s.Claim(timeout(t, patience), key, c)
				requireNotApplied(t, err, "value")
				require.ErrorContains(t, err, "WithPrefix")
			}
			_, err := s.Get(t.Context(), key)
			requireNotApplied(t, err, "value")
			for what, ok := range changes(t, s, key, "b") {
				require.False(t, ok, what)
			}
			require.Equal(t, foreign, srv.Do(t, "GET", nameOf(t)))
		})
	}
}

// changes tries everything that needs the token.
func changes(t *testing.T, s interface {
	lock.Store
	lock.Inspector
}, key, token string,
) map[string]bool {
	t.Helper()
	did := map[string]bool{}
	var err error
	did["renew"], err = s.Renew(t.Context(), key, claim(token))
	require.NoError(t, err)
	did["settle"], err = s.Settle(t.Context(), key, lock.Claim{Token: token}, []byte("x"), time.Minute)
	require.NoError(t, err)
	did["release"], err = s.Release(t.Context(), key, lock.Claim{Token: token})
	require.NoError(t, err)
	did["forget"], err = s.Forget(t.Context(), key, token)
	require.NoError(t, err)
	return did
}
