package faults_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// writeFenced is a write to a resource that checks fences: it refuses a fence below the highest
// fence so far.
const writeFenced = `
	local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
	if tonumber(ARGV[1]) < last then return 'FENCED' end
	redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
	return 'OK'`

// A holder is stopped for longer than its lease, another one works meanwhile,
// and the first goes on in the middle of its work: the first thing it sees is
// that its context is over, its fenced write is refused, and a write without a
// fence overwrites the successor's. No lease can prevent this last write.
func TestPausedHolder(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "waits for the end of a lease")
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	l := process(t, open(t, server.URL()), fencing)
	cmd, out := startChild(t, "paused", server.URL())
	require.True(t, out.Scan())
	require.Equal(t, "held", out.Text())
	refused(t, l, "user=42")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))

	stopped := time.Now()
	var e *lock.Lease
	until(t, func() (granted bool) {
		var err error
		e, err = l.Acquire(t.Context(), "user=42")
		return err == nil
	})
	t.Logf("the successor holds the lock %v after the pause began", time.Since(stopped).Round(time.Millisecond))
	fence, _ := e.Fence()
	require.Equal(t, "OK", client.Eval(t.Context(), writeFenced, []string{"fenced"}, fence, "successor").Val())
	require.NoError(t, client.Set(t.Context(), "unfenced", "successor", 0).Err())

	// It may have renewed long before the stop, and recognizes a pause by its length.
	time.Sleep(time.Until(stopped.Add(pausedLease + 100*time.Millisecond)))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	says := func() string {
		require.True(t, out.Scan(), "the holder died")
		return out.Text()
	}
	require.Equal(t, "the context was over: lock: lease lost", says())
	require.Equal(t, "fenced write: FENCED", says())
	require.Equal(t, "unfenced write: OK", says())
	require.Equal(t, "do: lost", says())

	require.Equal(t, "successor", client.HGet(t.Context(), "fenced", "by").Val())
	require.Equal(t, "paused", client.Get(t.Context(), "unfenced").Val(), "the twin: without a fence the stale write wins")
	lives(t, e)
	require.NoError(t, cmd.Wait())
}

// pausedLease is longer than a busy machine takes the processor away for, which
// the holder cannot distinguish from being stopped.
const pausedLease = 4 * time.Second

// childPauses is stopped while it spins: between two of its steps more time
// passes than a lease lasts, and the next step looks at the context.
func childPauses(ctx context.Context, store lock.Store) error {
	opt, err := redis.ParseURL(os.Getenv(childURL))
	if err != nil {
		return err
	}
	client := redis.NewClient(opt)
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(out, format+"\n", args...)
		_ = out.Flush()
	}
	l := lock.New(store, lock.WithLogger(quiet), lock.WithFencing(), lock.WithLease(pausedLease), lock.WithBudget(pausedLease/2))
	err = l.Do(ctx, "user=42", func(leased context.Context) error {
		last := time.Now() // before it says so: the test that reads it may stop this process at once
		say("held")
		for {
			now := time.Now()
			if now.Sub(last) < pausedLease {
				last = now
				continue
			}
			if leased.Err() == nil {
				say("the context lived on")
			} else {
				say("the context was over: %v", firstLine(context.Cause(leased)))
			}
			break
		}
		lease, _ := lock.FromContext(leased)
		fence, _ := lease.Fence()
		say("fenced write: %v", client.Eval(ctx, writeFenced, []string{"fenced"}, fence, "paused").Val())
		say("unfenced write: %v", client.Set(ctx, "unfenced", "paused", 0).Val())
		return nil
	})
	if errors.Is(err, lock.ErrLost) {
		say("do: lost")
		return l.Close(ctx)
	}
	return fmt.Errorf("do: %w", err)
}

// firstLine is the sentinel of err.
func firstLine(err error) error {
	if errors.Is(err, lock.ErrLost) {
		return lock.ErrLost
	}
	return err
}
