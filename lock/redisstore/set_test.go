package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

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

// The claim of a set is one command, however many keys it has, and so is a refusal. Its releases are
// sent at the same time.
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
	held, err := other.AcquireAll(t.Context(), keys)
	require.NoError(t, err)
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

// The fences of keys go on growing when a set without fences has them in between, although the
// clock of the server does not advance for them.
func TestSetKeepsTheFenceOfAKey(t *testing.T) {
	t.Parallel()
	s := overClient(t, redistest.Start(t).Addr(), nil)
	keys := fiveKeys(t.Name())
	fenced := lock.Claim{Token: "fenced", Attempt: 1, Lease: time.Minute, Fenced: true}
	e, err := s.Claim(t.Context(), keys[0], fenced)
	require.NoError(t, err)
	before := e.Fence
	ok, err := s.Release(t.Context(), keys[0], fenced)
	require.NoError(t, err)
	require.True(t, ok)
	claims := make([]lock.Claim, len(keys))
	for i := range claims {
		claims[i] = lock.Claim{Token: fmt.Sprint("set", i), Attempt: 1, Lease: time.Minute}
	}
	e, err = s.ClaimSet(t.Context(), keys, claims)
	require.NoError(t, err)
	require.Equal(t, lock.Entry{}, e)
	e, err = s.Get(t.Context(), keys[0])
	require.NoError(t, err)
	require.Equal(t, before, e.Fence)
	for i, key := range keys {
		ok, err := s.Release(t.Context(), key, claims[i])
		require.NoError(t, err)
		require.True(t, ok)
	}
	fenced.Token = "next"
	e, err = s.Claim(t.Context(), keys[0], fenced)
	require.NoError(t, err)
	require.Greater(t, e.Fence, before)
}

// On a Cluster the keys of a set are in several slots, and are claimed in order.
func TestSetOnACluster(t *testing.T) {
	t.Parallel()
	s := redisstore.New(redistest.StartCluster(t, 3, nil).Client(t))
	keys := fiveKeys(t.Name())
	_, err := s.ClaimSet(t.Context(), keys, make([]lock.Claim, len(keys)))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	l, other := setLocker(t, s), setLocker(t, s)
	require.NoError(t, l.DoAll(t.Context(), keys, func(ctx context.Context) error {
		require.ErrorIs(t, other.DoAll(ctx, keys, nil), lock.ErrHeld)
		return ctx.Err()
	}))
	require.NoError(t, other.DoAll(t.Context(), keys, func(context.Context) error { return nil }))
}

// A server without memory refuses a set. The error names the limit, and the release of a set that was
// granted before is served.
func TestSetOfAServerWithoutMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := setLocker(t, overClient(t, server.Addr(), nil))
	keys, later := fiveKeys("held"), fiveKeys("later")
	s, err := l.AcquireAll(t.Context(), keys)
	require.NoError(t, err)
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	err = l.DoAll(t.Context(), later, func(context.Context) error { return nil })
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrUnknown)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "raise maxmemory")
	require.NoError(t, s.Release(t.Context()))
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, l.DoAll(t.Context(), append(keys, later...), func(context.Context) error { return nil }))
}
