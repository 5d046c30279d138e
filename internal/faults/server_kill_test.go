package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// A server without persistence is killed. Held keys are free then, which breaks mutual exclusion;
// fences are for this case.
func TestServerKilledWithoutPersistence(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	here := process(t, open(t, server.URL()), fencing)
	there := process(t, overClient(t, server.Addr()), fencing)
	ctx := t.Context()
	first := acquired(t, here, "user=42")
	renewed := acquired(t, here.With(lock.WithLease(shortLease)), "user=renewed")
	var runs atomic.Int64
	run := func(l *lock.Locker) bool {
		t.Helper()
		replayed := false
		require.NoError(t, again(t, func() (err error) {
			_, replayed, err = l.Once(ctx, "order", nil, func(context.Context) ([]byte, error) {
				runs.Add(1)
				return nil, nil
			})
			return err
		}))
		return replayed
	}
	require.False(t, run(here))
	server.Stop()
	_, err := here.Acquire(ctx, "user=under-way")
	require.NoError(t, unavailable(err))
	server.Kill()
	down := map[string]func() error{}
	for name, l := range map[string]*lock.Locker{"open": here, "client": there} {
		down[name] = func() error {
			_, err := l.Acquire(ctx, "user=down")
			return unavailable(err)
		}
	}
	longest, err := allWithin(down)
	require.NoError(t, err)
	server.Restart(t)

	requireSecondHolder(t, first, there, "user=42")
	why := isNotified(t, renewed)
	require.False(t, run(there), "a receipt is lost with the rest")
	require.EqualValues(t, 2, runs.Load())
	require.True(t, run(here))
	for _, l := range []*lock.Locker{here, there} {
		for _, key := range []string{"user=42", "user=renewed", "user=under-way", "user=down"} {
			release(t, acquired(t, l, key))
		}
	}
	t.Logf("claims at the dead server took %v at most; the holder that did not ask was notified: %s", longest, why)
}

// With an append-only file that is written through, a kill changes nothing.
func TestServerKilledWithAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	newOrdeal(t, server, server.Addr(), lock.ErrUnavailable, func() func() {
		server.Kill()
		return func() { server.Restart(t) }
	}).requirePass(t)
}

// The power fails before the last writes are on disk. The earlier writes are left.
func TestServerLosesTheTailOfItsFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // so that the test decides what is lost
	here := process(t, open(t, server.URL()), fencing)
	there := process(t, overClient(t, server.Addr()), fencing)
	kept, lost := acquired(t, here, "user=kept"), claimed(t, here, "user=lost") // the last command
	server.Kill()
	files, err := filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.NoError(t, os.Truncate(files[0], info.Size()-10)) // the last command is incomplete
	server.Restart(t)

	refused(t, there, "user=kept")
	lives(t, kept)
	requireSecondHolder(t, lost, there, "user=lost")
}
