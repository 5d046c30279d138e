package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// jump is a server whose clock is about to be set, and two processes that know
// what it shows.
type jump struct {
	server *redistest.Server
	clock  *redistest.Clock
	proxy  *respproxy.Proxy // before here
	store  *redisstore.Store
	here   *lock.Locker
	there  *lock.Locker
}

func newJump(t *testing.T) *jump {
	t.Helper()
	server, clock := redistest.StartWithClock(t)
	proxy := respproxy.Start(t, server.Addr())
	store := open(t, proxy.URL())
	j := &jump{
		server: server, clock: clock, proxy: proxy, store: store,
		here:  process(t, store, fencing),
		there: process(t, overClient(t, server.Addr()), fencing),
	}
	j.use(t, "user=before")
	return j
}

// use gives a key to both processes in turn and returns the fence of the last.
func (j *jump) use(t *testing.T, key string) (fence int64) {
	t.Helper()
	for _, l := range []*lock.Locker{j.here, j.there} {
		lease := acquired(t, l, key)
		fence, _ = lease.Fence()
		release(t, lease)
	}
	return fence
}

// late returns when here has given up a claim that is still on its way.
func (j *jump) late(t *testing.T, key string) (deliver func()) {
	t.Helper()
	held := j.proxy.On(respproxy.Match{Name: "eval|evalsha", Key: key, Func: isGuardedClaim}, respproxy.Hold())
	until(t, func() bool {
		_, err := j.here.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		return isUnknown(err) && held.Hits() > 0
	})
	return func() {
		held.Remove()
		require.Positive(t, held.Deliver(t))
	}
}

// lifetime returns the time for which the server still keeps the entry of key.
func (j *jump) lifetime(t *testing.T, key string) time.Duration {
	t.Helper()
	ms, ok := j.server.Do(t, "PTTL", "latch:lock:"+key).(int64)
	require.True(t, ok)
	return time.Duration(ms) * time.Millisecond
}

// The server's clock is set forwards by more than a lease: what is held is free
// at the server.
func TestClockJumpsForward(t *testing.T) {
	t.Parallel()
	j := newJump(t)
	first := acquired(t, j.here, "user=42")
	renewed := acquired(t, j.here.With(lock.WithLease(shortLease)), "user=renewed")
	var runs atomic.Int64
	begun, finish, answered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	end := sync.OnceFunc(func() { close(finish) })
	t.Cleanup(end)
	ask := func(l *lock.Locker) (receipt []byte, err error) {
		receipt, _, err = l.Once(context.WithoutCancel(t.Context()), "order", nil, func(context.Context) ([]byte, error) {
			if runs.Add(1) == 1 {
				close(begun)
				<-finish
			}
			return fmt.Appendf(nil, "by run %d", runs.Load()), nil
		})
		return receipt, err
	}
	go func() {
		var err error
		for runs.Load() == 0 && t.Context().Err() == nil { // a busy machine may not serve the first claim
			_, err = ask(j.here)
		}
		answered <- err
	}()
	<-begun
	deliver := j.late(t, "user=late")

	j.clock.Set(t, 2*time.Minute)
	deliver()
	require.Empty(t, j.server.Keys(t, "*late*"), "a claim from before is refused as late")
	requireSecondHolder(t, first, j.there, "user=42")
	isNotified(t, renewed)
	require.ErrorIs(t, again(t, func() error {
		_, err := ask(j.there)
		return err
	}), lock.ErrAbandoned, "a run that seems to be over is not repeated")
	end()
	require.NoError(t, <-answered)
	for _, l := range []*lock.Locker{j.there, j.here} {
		var receipt []byte
		until(t, func() bool {
			var err error
			receipt, err = ask(l)
			return err == nil
		})
		require.Equal(t, "by run 1", string(receipt))
	}
	for _, key := range []string{"user=42", "user=renewed", "user=late", "user=new"} {
		j.use(t, key)
	}
}

// The server's clock is set back by an hour: entries from before live for an
// hour more.
func TestClockJumpsBack(t *testing.T) {
	t.Parallel()
	j := newJump(t)
	last := j.use(t, "user=fence")
	first := acquired(t, j.here, "user=42")
	brief := acquired(t, j.here.With(lock.WithLease(shortLease), lock.WithMaxHold(shortLease)), "user=brief")
	deliver := []func(){j.late(t, "user=late-here"), j.late(t, "user=late-there")}
	const killed, killedLease = "killed", 3 * time.Second // a process that does not live to give its key back
	until(t, func() bool {
		e, err := j.store.Claim(t.Context(), "user=killed", lock.Claim{Token: killed, Lease: killedLease})
		return err == nil && e.Token == killed
	})
	since := time.Now()

	j.clock.Set(t, -time.Hour)
	require.Greater(t, j.lifetime(t, "user=42"), time.Hour)
	require.Greater(t, j.use(t, "user=fence"), last, "fences grow all the same")
	refused(t, j.there, "user=42")
	lives(t, first)
	j.use(t, "user=42")

	// The guard lets claims from before pass, for an hour. Their process knows
	// them as dead, and removes them for others.
	for _, deliver := range deliver {
		deliver()
	}
	release(t, claimed(t, j.here, "user=late-here"))
	serves(t, j.there, "user=late-there")

	// Belief does not follow the server's clock. (The holder is notified first; its
	// own process lets others in a moment later.)
	isNotified(t, brief)
	serves(t, j.here, "user=brief")
	serves(t, j.there, "user=brief")

	// Only an operator is left to remove what the killed process held.
	time.Sleep(time.Until(since.Add(killedLease)))
	refused(t, j.there, "user=killed")
	require.Greater(t, j.lifetime(t, "user=killed"), 59*time.Minute)
	until(t, func() bool {
		ok, err := j.store.Forget(t.Context(), "user=killed", killed)
		return err == nil && ok
	})
	j.use(t, "user=killed")
}

// The twin of the fences that grow: a clock that is set back, and a key that
// stays unused for as long as its last fence is remembered, a minute.
func TestClockBackTakesFencesBack(t *testing.T) {
	t.Parallel()
	j := newJump(t)
	last := j.use(t, "user=42")
	j.clock.Set(t, -time.Hour)
	next := j.use(t, "user=42")
	require.Greater(t, next, last)
	j.clock.Set(t, -time.Hour+2*time.Minute)
	require.Less(t, j.use(t, "user=42"), last)
}
