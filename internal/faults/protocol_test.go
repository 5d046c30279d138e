package faults_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

var (
	fencing = lock.WithFencing()
	orphan  = lock.Claim{Token: "orphan", Lease: time.Minute}
)

// Two clicks within one round trip, and a third process that competes, 10,000
// times: never two holders, and never is a living token deleted as an orphan.
func TestDoubleClick(t *testing.T) {
	server := redistest.Start(t)
	here := locker(t, open(t, server.URL()))
	there := locker(t, open(t, server.URL()))
	var holders, granted, refused, slow, lost atomic.Int64
	click := func(l *lock.Locker) {
		e, err := l.Acquire(t.Context(), "user=42")
		switch {
		case errors.Is(err, lock.ErrHeld):
			refused.Add(1)
			return
		case errors.Is(err, lock.ErrUnavailable): // a machine that is busy with something else
			slow.Add(1)
			return
		case err != nil:
			t.Errorf("acquire: %v", err)
			return
		}
		if holders.Add(1) != 1 {
			t.Error("two holders")
		}
		granted.Add(1)
		holders.Add(-1)
		switch err := e.Release(t.Context()); {
		case errors.Is(err, lock.ErrUnavailable):
			slow.Add(1)
		case err != nil:
			lost.Add(1)
			t.Errorf("a living lease was taken away: %v", err)
		}
	}
	for range 10_000 {
		var wg sync.WaitGroup
		wg.Go(func() { click(here) })
		wg.Go(func() { click(here) })
		wg.Go(func() { click(there) })
		wg.Wait()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d granted, %d refused, %d not answered in time", granted.Load(), refused.Load(), slow.Load())
	require.Zero(t, lost.Load())
	require.Positive(t, refused.Load(), "the clicks never met")
	require.NoError(t, left(t, server, soon))
}

// A server that is stopped while a claim is on its way, and executes it when it
// wakes up, in any order with the clean-up.
func TestStalledServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "stops the server again and again")
	t.Parallel()
	server := redistest.Start(t)
	stalled := 40 * time.Millisecond
	var recovered, reaped atomic.Int64
	l := locker(t, open(t, server.URL()), lock.WithBudget(stalled), lock.WithLease(time.Minute), lock.WithMaxHold(time.Hour),
		lock.WithObserver(func(_ context.Context, e lock.Event) {
			switch e.Kind {
			case lock.EventReaped:
				reaped.Add(1)
			case lock.EventRecovered:
				recovered.Add(1)
			default:
			}
		}))
	other := locker(t, open(t, server.URL()))
	require.Eventually(t, func() bool { return l.Do(t.Context(), "user=warm", func(context.Context) error { return nil }) == nil }, 10*time.Second, time.Millisecond)
	unknown := 0
	for range 100 {
		server.Stop()
		_, err := l.Acquire(t.Context(), "user=42")
		require.ErrorIs(t, err, lock.ErrUnavailable) // not applied, where a connection had to be made
		if errors.Is(err, lock.ErrUnknown) {
			unknown++
		}
		server.Cont()
		deadline := time.Now().Add(20 * time.Second)
		for {
			e, err := l.Acquire(t.Context(), "user=42")
			require.NotErrorIs(t, err, lock.ErrHeld, "refused by its own dead claim")
			if err == nil {
				require.NotErrorIs(t, e.Release(t.Context()), lock.ErrLost)
				break
			}
			require.True(t, time.Now().Before(deadline), "still %v", err)
		}
	}
	require.Positive(t, unknown)
	require.NoError(t, left(t, server, 20*time.Second), "nothing is left, long before the lease of a minute")
	release(t, acquired(t, other, "user=42"))
	t.Logf("%d recovered, %d reaped", recovered.Load(), reaped.Load())
	require.Positive(t, reaped.Load(), "the path was never taken")
}

const shortLease = 1500 * time.Millisecond

func TestHungHandlerFreedByAnOperator(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	here := locker(t, store, lock.WithLease(trafficLease))
	there := locker(t, open(t, server.URL()))
	hung := acquired(t, here, "user=42")
	entry, err := store.Get(t.Context(), "user=42")
	require.NoError(t, err)
	ok, err := store.Forget(t.Context(), "user=42", entry.Token)
	require.NoError(t, err)
	require.True(t, ok)

	e := acquired(t, there, "user=42") // other processes go on at once
	refused(t, here, "user=42")
	<-hung.Context().Done()
	require.ErrorIs(t, context.Cause(hung.Context()), lock.ErrLost)
	// The old holder's calls leave the successor alone.
	require.ErrorIs(t, hung.Extend(t.Context()), lock.ErrLost)
	require.ErrorIs(t, hung.Release(t.Context()), lock.ErrLost)
	lives(t, e)
	release(t, acquired(t, here, "user=42"))
}

func TestRedisGoneForLongerThanTheLease(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "waits for the end of a lease")
	t.Parallel()
	server := redistest.Start(t)
	l := locker(t, open(t, server.URL()), lock.WithLease(shortLease))
	until(t, func() bool { // a busy machine may not serve the claim, and may delay the holder that is notified
		began, notified := time.Now(), time.Time{}
		err := l.Do(t.Context(), "user=42", func(ctx context.Context) error {
			server.Stop()
			defer server.Cont()
			<-ctx.Done()
			notified = time.Now()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			return nil
		})
		if notified.IsZero() {
			require.ErrorIs(t, err, lock.ErrUnavailable)
			return false
		}
		require.ErrorIs(t, err, lock.ErrLost)
		require.NoError(t, left(t, server, soon))
		t.Logf("notified after %v, a lease is %v", notified.Sub(began), shortLease)
		return notified.Sub(began) <= shortLease
	})
	release(t, acquired(t, l, "user=42"))
}

func TestLongWorkIsRenewedOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	here := locker(t, open(t, server.URL()))
	there := locker(t, open(t, server.URL()))
	const lease = 4 * time.Second // over which no busy machine sleeps
	long := acquired(t, here.With(lock.WithLease(lease)), "user=42")
	for deadline := time.Now().Add(lease + lease/2); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		refused(t, there, "user=42")
	}
	lives(t, long)
	capped := acquired(t, here.With(lock.WithLease(shortLease), lock.WithMaxHold(2*shortLease)), "user=42")
	began := time.Now()
	<-capped.Context().Done()
	require.LessOrEqual(t, time.Since(began), 2*shortLease+slack)
	require.NoError(t, left(t, server, drifted), "gone from the server too")
	require.ErrorIs(t, capped.Release(t.Context()), lock.ErrLost)
}

// drifted is a little more than what a holder stops to believe before the
// server does.
const drifted = shortLease/20 + 50*time.Millisecond

func isUnknown(err error) bool { return errors.Is(err, lock.ErrUnknown) }
