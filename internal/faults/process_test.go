package faults_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// The test binary starts itself again as another process.
const (
	childRole = "LATCH_TEST_CHILD"
	childURL  = "LATCH_TEST_URL"
	childKey  = "LATCH_TEST_KEY"
	killLease = 4 * time.Second // of which much is left when its holder is killed, and others have asked

	// childLives is the longest life of a child: many times what any child needs. A test that waits
	// for a hung child then fails by its name, long before the time of the whole package is over.
	childLives = 2 * time.Minute
)

func child(role string) int {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, os.Getenv(childURL))
	for began := time.Now(); err != nil && time.Since(began) < childLives/4; { // a campaign may have killed the server
		time.Sleep(10 * time.Millisecond)
		store, err = redisstore.Open(ctx, os.Getenv(childURL))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l := lock.New(store, lock.WithLease(killLease), lock.WithBudget(killLease/2))
	switch role {
	case "hold":
		err = l.Do(ctx, "user=42", func(context.Context) error { return hangs() })
	case "once":
		_, _, err = l.Once(ctx, "order", []byte("1"), func(context.Context) ([]byte, error) { return nil, hangs() })
	case "commit", "commit-rerun":
		if role == "commit-rerun" {
			l = l.With(lock.WithRerunAbandoned())
		}
		_, _, err = l.Once(ctx, "order", []byte("1"), func(ctx context.Context) ([]byte, error) {
			if err := lock.Commit(ctx); err != nil {
				return nil, err
			}
			return nil, hangs()
		})
	case "paused":
		err = childPauses(ctx, store)
	case "victim":
		err = childDies(ctx, store)
	default:
		err = errors.New("unknown role " + role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		return 1
	}
	return 0
}

// hangs prints that the work runs, which goes on until the process is killed.
func hangs() error {
	if _, err := fmt.Fprintln(os.Stdout, "running"); err != nil {
		return err
	}
	select {}
}

// childDies is killed while it runs what others want to run too.
func childDies(ctx context.Context, store lock.Store) error {
	l := lock.New(store, lock.WithLogger(quiet), lock.WithBudget(campaignBudget), lock.WithLease(campaignLease),
		lock.WithKeep(time.Hour), lock.WithWait(time.Minute))
	err := lock.ErrUnavailable
	for errors.Is(err, lock.ErrUnavailable) { // a busy machine may not serve the first claim
		_, _, err = l.Once(ctx, os.Getenv(childKey), nil, func(context.Context) ([]byte, error) { return nil, hangs() })
	}
	if err == nil { // another process was first
		_, err = fmt.Fprintln(os.Stdout, "replayed")
	}
	return err
}

func startChild(t *testing.T, role, url string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	testmain.SkipIn(t, testmain.Short, "starts processes")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, childRole+"="+role, childURL+"="+url)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	tooLong := time.AfterFunc(childLives, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { tooLong.Stop(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func TestKilledProcessBlocksForOneLease(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "waits for the end of a lease")
	t.Parallel()
	server := redistest.Start(t)
	l := locker(t, open(t, server.URL()))
	cmd, out := startChild(t, "hold", server.URL())
	require.True(t, out.Scan())
	refused(t, l, "user=42")
	awaitRenewal(t, server, "latch:lock:user=42")
	require.NoError(t, cmd.Process.Kill())
	died := time.Now()
	until(t, func() bool {
		e, err := l.Acquire(t.Context(), "user=42")
		if err != nil {
			require.True(t, errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable), "%v", err)
			return false
		}
		t.Logf("free %v after the kill", time.Since(died))
		require.LessOrEqual(t, time.Since(died), killLease+slack)
		release(t, e)
		return true
	})
	require.NoError(t, left(t, server, "latch:*", soon))
}

// awaitRenewal returns when the holder of an entry has renewed it.
func awaitRenewal(t *testing.T, server *redistest.Server, entry string) {
	t.Helper()
	least := int64(1) << 62
	until(t, func() bool {
		ms, ok := server.Do(t, "PTTL", entry).(int64)
		require.True(t, ok && ms > 0, "%v is left of the lease", ms)
		least = min(least, ms)
		return ms > least
	})
}

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
	client := redistest.Client(t, server)
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
