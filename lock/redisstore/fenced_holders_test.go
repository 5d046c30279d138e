package redisstore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// When a server's clock is set back, fences must not go back while there is a
// chain of holders, even if holders without a fence change the entry.
func TestHoldersWithoutAFenceKeepTheLastOne(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	s := open(t, srv.URL())
	plain := claim("plain")
	plain.Linger = time.Minute
	for name, hold := range map[string]func(t *testing.T, key string){
		"released": func(t *testing.T, key string) {
			take(t, s, key, claim("plain"))
			release(t, s, key, "plain")
		},
		"sent twice": func(t *testing.T, key string) {
			take(t, s, key, claim("plain"))
			require.Zero(t, take(t, s, key, claim("plain")).Fence, "what it keeps is not its own")
			release(t, s, key, "plain")
		},
		"renewed": func(t *testing.T, key string) {
			take(t, s, key, plain)
			longer := plain
			longer.Linger = time.Hour
			ok, err := s.Renew(t.Context(), key, longer)
			require.NoError(t, err)
			require.True(t, ok)
			release(t, s, key, "plain")
		},
		"settled": func(t *testing.T, key string) {
			take(t, s, key, plain)
			ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "plain"}, []byte("receipt"), time.Hour)
			require.NoError(t, err)
			require.True(t, ok)
			ok, err = s.Forget(t.Context(), key, "plain")
			require.NoError(t, err)
			require.True(t, ok)
		},
		"one after the other": func(t *testing.T, key string) {
			for range 3 {
				take(t, s, key, claim("plain"))
				release(t, s, key, "plain")
			}
		},
		"taken over": func(t *testing.T, key string) {
			take(t, s, key, plain)
			name := entryName(key)
			srv.Do(t, "PEXPIRE", name, 30_000) // its linger runs
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

// A takeover by a holder without a fence keeps the fence of the run that it replaces.
func TestTakeoverWithoutAFenceKeepsTheLastOne(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	s := open(t, srv.URL())
	first := fenced("a")
	first.Linger = time.Minute
	last := take(t, s, "k", first).Fence
	srv.Do(t, "PEXPIRE", "latch:lock:k", 30_000)
	clock.Set(t, -20*time.Second)
	next := claim("b")
	next.Replaces = "a"
	require.Zero(t, take(t, s, "k", next).Fence)
	release(t, s, "k", "b")
	require.Greater(t, takeInTheEnd(t, s, "k", fenced("c")).Fence, last)
}

// A release in a slot that moves to another node of a Cluster leaves the last fence for that node, whose clock
// may be behind.
func TestReleaseInASlotThatMovesKeepsTheFence(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	s := redisstore.New(cluster.Client(t))
	name := nameOf(t)
	from, to := cluster.Nodes[0], cluster.Nodes[1]
	if cluster.Owner(t, name) != from {
		from, to = to, from
	}
	last := take(t, s, keyFor(t), fenced("a")).Fence
	to.Do(t, "CLUSTER", "SETSLOT", cluster.Slot(t, name), "IMPORTING", from.Do(t, "CLUSTER", "MYID"))
	from.Do(t, "CLUSTER", "SETSLOT", cluster.Slot(t, name), "MIGRATING", to.Do(t, "CLUSTER", "MYID"))
	release(t, s, keyFor(t), "a")
	value, _ := from.Do(t, "GET", name).(string)
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
