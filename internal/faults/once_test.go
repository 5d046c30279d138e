package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// scripts of a settle have three arguments after the key, a claim's is a SET.
func isSettle(args [][]byte) bool { return len(args) == 7 }

// Every fault at every step of a run: the effect happens once, the answer of
// the work reaches its caller, and the record appears.
func TestOnceUnderFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := respproxy.Start(t, server.Addr())
	l := locker(t, open(t, p.URL()))
	other := locker(t, open(t, server.URL()))
	steps := map[string]respproxy.Match{
		"claim":  {Name: "set"},
		"settle": {Name: "eval|evalsha", Func: isSettle},
	}
	actions := map[string]respproxy.Action{
		"applied, closed":      respproxy.Swallow(respproxy.Close),
		"applied, reset":       respproxy.Swallow(respproxy.Reset),
		"applied, hangs":       respproxy.Swallow(respproxy.Hang),
		"not applied, closed":  respproxy.Drop(respproxy.Close),
		"not applied, hangs":   respproxy.Drop(respproxy.Hang),
		"refused":              respproxy.ReplyError("OOM command not allowed when used memory > 'maxmemory'."),
		"applied, then failed": respproxy.ReplyErrorAfterApply("upstream failure"),
		"late":                 respproxy.HoldFor(time.Second),
	}
	for step, match := range steps {
		for name, action := range actions {
			for _, count := range []int{1, 0} { // one of them, and all until the call has returned
				t.Run(fmt.Sprintf("%s/%s/%d", step, name, count), func(t *testing.T) {
					key := strings.ReplaceAll(t.Name(), " ", "-")
					match := match
					match.Count = count
					var runs atomic.Int64
					work := func(context.Context) ([]byte, error) {
						runs.Add(1)
						return []byte("answer"), nil
					}
					p.On(match, action)
					began := time.Now()
					receipt, _, err := l.Once(t.Context(), key, nil, work)
					require.Less(t, time.Since(began), 2*budget+slack)
					p.Clear()
					if err != nil {
						require.ErrorIs(t, err, lock.ErrUnavailable)
						require.Zero(t, runs.Load(), "work that ran has an answer")
					} else {
						require.Equal(t, "answer", string(receipt))
						require.EqualValues(t, 1, runs.Load())
					}
					// The callers that ask now, and the calls that are still in flight.
					deadline := time.Now().Add(soon)
					for _, l := range []*lock.Locker{l, other} {
						for {
							receipt, _, err = l.Once(t.Context(), key, nil, work)
							if err == nil {
								break
							}
							require.True(t, errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnavailable), "%v", err)
							require.True(t, time.Now().Before(deadline), "still %v", err)
							time.Sleep(20 * time.Millisecond)
						}
						require.Equal(t, "answer", string(receipt))
					}
					require.EqualValues(t, 1, runs.Load())
				})
			}
		}
	}
}

// A server that runs out of memory between claim and settle.
func TestOnceOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := locker(t, open(t, server.URL()))
	var runs atomic.Int64
	work := func(context.Context) ([]byte, error) {
		runs.Add(1)
		server.Do(t, "CONFIG", "SET", "maxmemory", "1")
		return []byte("answer"), nil
	}
	served := l.With(lock.WithBudget(patient))
	receipt, replayed, err := served.Once(t.Context(), "key", nil, work)
	require.NoError(t, err)
	require.False(t, replayed)
	require.Equal(t, "answer", string(receipt))
	_, replayed, err = served.Once(t.Context(), "key", nil, work)
	require.NoError(t, err, "a replay needs no memory")
	require.True(t, replayed)
	_, _, err = l.Once(t.Context(), "another", nil, work)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.EqualValues(t, 1, runs.Load())
}

// 200 at once, in two processes' worth of lockers.
func TestOnceRace(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "starts 200 callers, whose race the server does not decide")
	server := redistest.Start(t)
	for name, opts := range map[string][]lock.Option{"refuse": nil, "wait": {lock.WithWait(20 * time.Second)}} {
		t.Run(name, func(t *testing.T) {
			opts := append(opts, lock.WithBudget(patient))
			lockers := []*lock.Locker{locker(t, open(t, server.URL()), opts...), locker(t, open(t, server.URL()), opts...)}
			var runs, answered, refused atomic.Int64
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					receipt, _, err := lockers[i%2].Once(t.Context(), "race-"+name, nil, func(context.Context) ([]byte, error) {
						runs.Add(1)
						time.Sleep(300 * time.Millisecond)
						return []byte("answer"), nil
					})
					switch {
					case err == nil && string(receipt) == "answer":
						answered.Add(1)
					case errors.Is(err, lock.ErrHeld):
						refused.Add(1)
					default:
						t.Errorf("%q, %v", receipt, err)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, runs.Load())
			require.EqualValues(t, 200, answered.Load()+refused.Load())
			if name == "wait" {
				// 64 wait in each locker in addition to the one that works or asks.
				require.GreaterOrEqual(t, answered.Load(), int64(128))
			}
		})
	}
}

// A process is killed in the middle of its work.
func TestOnceCrash(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "waits for the leases of killed processes")
	t.Parallel()
	for _, c := range []struct {
		role  string
		opts  []lock.Option
		again bool
	}{
		{"once", nil, false},
		{"once", []lock.Option{lock.WithRerunAbandoned()}, true},
		{"commit", nil, false},
		{"commit-rerun", []lock.Option{lock.WithRerunAbandoned()}, false},
	} {
		t.Run(fmt.Sprintf("%s rerun=%v", c.role, len(c.opts) > 0), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l := locker(t, open(t, server.URL()), append(c.opts, lock.WithBudget(patient))...)
			cmd, out := startChild(t, c.role, server.URL())
			require.True(t, out.Scan())
			require.NoError(t, cmd.Process.Kill())
			_, _, err := l.Once(t.Context(), "order", []byte("1"), nil)
			require.ErrorIs(t, err, lock.ErrHeld)
			time.Sleep(killLease + time.Second)
			attempt := 0
			_, _, err = l.Once(t.Context(), "order", []byte("1"), func(ctx context.Context) ([]byte, error) {
				attempt = lock.Attempt(ctx)
				return nil, nil
			})
			if c.again {
				require.NoError(t, err)
				require.Equal(t, 2, attempt)
				return
			}
			require.Error(t, err)
			require.Zero(t, attempt, "ran again")
			_, _, err = l.Once(t.Context(), "order", []byte("2"), nil)
			require.ErrorIs(t, err, lock.ErrMismatch)
			// An operator frees it.
			keys := server.Keys(t)
			require.Len(t, keys, 1)
			server.Do(t, "DEL", keys[0])
			_, _, err = l.Once(t.Context(), "order", []byte("2"), func(context.Context) ([]byte, error) { return nil, nil })
			require.NoError(t, err)
		})
	}
}

func childRuns(ctx context.Context, store lock.Store, commit bool, opts ...lock.Option) error {
	l := lock.New(store, append(opts, lock.WithLease(killLease), lock.WithBudget(killLease/2))...)
	_, _, err := l.Once(ctx, "order", []byte("1"), func(ctx context.Context) ([]byte, error) {
		if commit {
			if err := lock.Commit(ctx); err != nil {
				return nil, err
			}
		}
		if _, err := fmt.Fprintln(os.Stdout, "running"); err != nil {
			return nil, err
		}
		select {} // until it is killed
	})
	return err
}

// Callers that wait hold no connection: with a pool of one, others are served
// as if they were not there.
func TestWaitersHoldNoConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder := locker(t, open(t, server.URL()), lock.WithBudget(patient))
	waiting := locker(t, open(t, server.URL()+"?pool_size=1"), lock.WithWait(time.Minute), lock.WithBudget(patient))
	release := make(chan struct{})
	held := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, _, err := holder.Once(t.Context(), "busy", nil, func(context.Context) ([]byte, error) {
			close(held)
			<-release
			return []byte("answer"), nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	var answered atomic.Int64
	for range 60 {
		all.Go(func() {
			if receipt, _, err := waiting.Once(t.Context(), "busy", nil, nil); err == nil && string(receipt) == "answer" {
				answered.Add(1)
			}
		})
	}
	for i := range 200 {
		require.NoError(t, waiting.Do(t.Context(), lock.Key("user", fmt.Sprint(i)), func(context.Context) error { return nil }))
	}
	require.Zero(t, answered.Load())
	close(release)
	all.Wait()
	require.EqualValues(t, 60, answered.Load())
}
