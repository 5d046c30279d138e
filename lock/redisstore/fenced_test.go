package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func fenced(token string) lock.Claim {
	c := claim(token)
	c.Fenced = true
	return c
}

func release(tb testing.TB, s lock.Store, key, token string) {
	tb.Helper()
	must.Yes(tb)(s.Release(timeout(tb, patience), key, lock.Claim{Token: token}))
}

// Fences grow although what the server knows of a key is lost, or comes from the future.
func TestFences(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	const key, name = "k", "latch:lock:k"
	last := int64(0)
	grow := func(step string) {
		e := take(t, s, key, fenced(step))
		require.Greater(t, e.Fence, last, step)
		require.Equal(t, e.Fence, must.Entry(t)(s.Get(t.Context(), key)).Fence)
		last = e.Fence
	}
	grow("first")
	srv.Do(t, "DEL", name)
	grow("after the entry was lost")
	release(t, s, key, "after the entry was lost")
	require.Equal(t, int64(1), srv.Do(t, "DEL", name))
	grow("after the stub was lost")
	release(t, s, key, "after the stub was lost")
	srv.Do(t, "SCRIPT", "FLUSH")
	grow("after the scripts were lost")

	// If the clock was set back, the fence in the stub decides.
	release(t, s, key, "after the scripts were lost")
	ahead := last + time.Hour.Microseconds()
	stub, _ := srv.Do(t, "GET", name).(string)
	srv.Do(t, "SET", name, stub[:16]+fmt.Sprintf("%016d", ahead)+stub[32:], "KEEPTTL")
	last = ahead
	grow("after a stub from the future")
	require.Equal(t, ahead+1, last)
}

func TestStubs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	take(t, s, "k", fenced("a"))
	release(t, s, "k", "a")
	left, _ := srv.Do(t, "PTTL", "latch:lock:k").(int64)
	require.InDelta(t, time.Minute.Milliseconds(), left, 5000)
	require.Zero(t, must.Entry(t)(s.Get(t.Context(), "k")), "a stub is nothing")
	require.Empty(t, listed(t, s))
	requireUnchangedBy(t, s, "k", "a")
	require.Equal(t, lock.Entry{State: lock.Held, Token: "b", Attempt: 1, Left: time.Minute}, take(t, s, "k", claim("b")),
		"a claim without a fence takes it as free")
	release(t, s, "k", "b")
	require.Empty(t, listed(t, s), "and leaves another")
	require.Equal(t, []string{"latch:lock:k"}, srv.Keys(t))
}

// The first claim learns the server's clock, and so does the first after the clock was set. A claim that
// comes after its caller has given up is refused.
func TestServerClocks(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	claims := func(token string) int {
		before := p.Commands("evalsha")
		take(t, s, keyFor(t), fenced(token))
		release(t, s, keyFor(t), token)
		return p.Commands("evalsha") - before - 1
	}
	require.Equal(t, 2, claims("a"), "the first learns what time it is")
	require.Equal(t, 1, claims("b"))
	clock.Set(t, time.Hour)
	require.Equal(t, 2, claims("c"), "refused, learned, repeated")
	require.Equal(t, 1, claims("d"))

	clock.Set(t, 0)
	require.Equal(t, 1, claims("e"), "learned on the way")
	held := p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.Hold())
	requireUnknown(t, untilSent(t, func() error {
		_, err := s.Claim(timeout(t, 100*time.Millisecond), keyFor(t), fenced("late"))
		return err
	}), "silent")
	held.Wait(t, 1)
	held.Deliver(t)
	held.Remove()
	require.Equal(t, lock.Free, must.Entry(t)(s.Get(t.Context(), keyFor(t))).State, "and the guard is right again")
}

func TestClaimsWithoutADeadlineAreNotGuarded(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	take(t, s, keyFor(t)+"&1", fenced("a"))
	clock.Set(t, time.Hour) // a guard would refuse
	before := p.Commands("evalsha")
	require.Equal(t, "a", must.Entry(t)(s.Claim(t.Context(), keyFor(t)+"&2", fenced("a"))).Token)
	require.Equal(t, 1, p.Commands("evalsha")-before)
}

// When a server's clock is set back, fences must not go back while there is a
// chain of holders, even if holders without a fence change the entry.
func TestHoldersWithoutAFenceKeepTheLastOne(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	s := open(t, srv.URL())
	plain := claim("plain")
	plain.Linger = time.Minute
	for name, hold := range map[string]func(t *testing.T, key string){
		"sent twice": func(t *testing.T, key string) {
			take(t, s, key, claim("plain"))
			require.Zero(t, take(t, s, key, claim("plain")).Fence, "what it keeps is not its own")
			release(t, s, key, "plain")
		},
		"renewed": func(t *testing.T, key string) {
			take(t, s, key, plain)
			longer := plain
			longer.Linger = time.Hour
			must.Yes(t)(s.Renew(t.Context(), key, longer))
			release(t, s, key, "plain")
		},
		"settled": func(t *testing.T, key string) {
			take(t, s, key, plain)
			must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: "plain"}, []byte("receipt"), time.Hour))
			must.Yes(t)(s.Forget(t.Context(), key, "plain"))
		},
		"one after the other": func(t *testing.T, key string) {
			for range 3 {
				take(t, s, key, claim("plain"))
				release(t, s, key, "plain")
			}
		},
		"taken over": func(t *testing.T, key string) {
			take(t, s, key, plain)
			srv.Do(t, "PEXPIRE", entryName(key), 30_000) // its linger runs
			next := plain
			next.Token, next.Replaces = "next", "plain"
			require.Zero(t, take(t, s, key, next).Fence)
			release(t, s, key, "next")
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := keyFor(t)
			clock.Set(t, 0)
			last := take(t, s, key, fenced("a")).Fence
			release(t, s, key, "a")
			clock.Set(t, -20*time.Second)
			hold(t, key)
			require.Greater(t, takeInTheEnd(t, s, key, fenced("b")).Fence, last)
			release(t, s, key, "b")
		})
	}
}

// The node that a slot moves to gets the last fence of a released key, as its clock may be behind.
func TestReleaseInASlotThatMovesKeepsTheFence(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	s := redisstore.New(redistest.ClusterClient(t, cluster))
	from, to := ownerAndOther(t, cluster, nameOf(t))
	last := take(t, s, keyFor(t), fenced("a")).Fence
	beginMove(t, cluster, nameOf(t), from, to)
	release(t, s, keyFor(t), "a")
	value, _ := from.Do(t, "GET", nameOf(t)).(string)
	require.Contains(t, value, strconv.FormatInt(last, 10))
}

// takeInTheEnd is take for a fenced claim after the server's clock was set: the
// claim is refused until the store knows the new time.
func takeInTheEnd(t *testing.T, s lock.Store, key string, c lock.Claim) (e lock.Entry) {
	t.Helper()
	require.NoError(t, untilSent(t, func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		e, err = s.Claim(ctx, key, c)
		return err
	}))
	require.Equal(t, c.Token, e.Token)
	return e
}
