package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const (
	waitingProcesses = 4
	waitersEach      = 25
	waiterHolds      = 50 * time.Millisecond

	// patient is the budget of those whose calls all succeed, however busy the
	// machine is.
	patient = 10 * time.Second
)

// childWaits has many callers wait for one key at once, and says when each had
// it.
func childWaits(ctx context.Context, store *redisstore.Store) error {
	l := lock.New(store, lock.WithLogger(quiet), lock.WithBudget(patient), lock.WithWait(5*time.Minute))
	var mu sync.Mutex
	var failures []error
	var wg sync.WaitGroup
	for i := range waitersEach {
		wg.Go(func() {
			err := l.Do(ctx, "user=42", func(context.Context) error {
				began := time.Now()
				time.Sleep(waiterHolds)
				mu.Lock()
				defer mu.Unlock()
				_, err := fmt.Fprintf(os.Stdout, "%d %d %d\n", i, began.UnixNano(), time.Now().UnixNano())
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
		})
	}
	wg.Wait()
	return errors.Join(append(failures, l.Close(ctx), store.Close(), goleak.Find())...)
}

func openNotifying(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url, redisstore.WithNotifications())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// had is the time during which a waiter had the key.
type had struct {
	process, waiter int
	from, to        time.Time
}

// A hundred waiters in four processes: each gets the key once, no two hold it
// together, and hardly any time passes between two of them. Of each process only
// one asks the server.
func TestHundredWaitersInFourProcesses(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "measures the time between 100 holders")
	t.Parallel()
	for name, role := range map[string]string{"polls": "wait", "notifications": "wait, notified"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			store := open(t, server.URL())
			if role != "wait" {
				store = openNotifying(t, server.URL())
			}
			first, err := locker(t, store, lock.WithBudget(patient)).Acquire(t.Context(), "user=42")
			require.NoError(t, err)

			var proxies []*respproxy.Proxy
			lines := make(chan had)
			var wg sync.WaitGroup
			for p := range waitingProcesses {
				proxy := respproxy.Start(t, server.Addr())
				proxies = append(proxies, proxy)
				claimed := proxy.On(respproxy.Match{Name: "set", Key: "user=42"}, respproxy.Action{})
				cmd, out := startChild(t, role, proxy.URL())
				claimed.Wait(t, 1)
				wg.Go(func() {
					for range waitersEach {
						h := had{process: p}
						var from, to int64
						if !out.Scan() {
							t.Errorf("process %d ended early", p)
							return
						}
						if _, err := fmt.Sscan(out.Text(), &h.waiter, &from, &to); err != nil {
							t.Error(err)
						}
						h.from, h.to = time.Unix(0, from), time.Unix(0, to)
						lines <- h
					}
					if err := cmd.Wait(); err != nil {
						t.Error(err)
					}
				})
			}

			window := 3 * time.Second
			before := claimsOf(proxies)
			time.Sleep(window)
			for p, n := range claimsOf(proxies) {
				n -= before[p]
				t.Logf("process %d has claimed %d times in %v", p, n, window)
				require.Less(t, n, manyClaims, "one of it asks, about four times a second")
			}

			require.NoError(t, first.Release(t.Context()))
			released := time.Now()
			go func() { wg.Wait(); close(lines) }()
			var all []had
			for h := range lines {
				all = append(all, h)
			}
			judgeWaiters(t, released, all)
			require.NoError(t, left(t, server, 5*slack))
		})
	}
}

// manyClaims is a number of claims that one process never makes in a few seconds
// in which the key is not released.
const manyClaims = 60

func claimsOf(proxies []*respproxy.Proxy) []int {
	var all []int
	for _, p := range proxies {
		all = append(all, p.Commands("set"))
	}
	return all
}

func judgeWaiters(t *testing.T, released time.Time, all []had) {
	t.Helper()
	require.Len(t, all, waitingProcesses*waitersEach)
	slices.SortFunc(all, func(a, b had) int { return a.from.Compare(b.from) })
	seen := make(map[[2]int]bool)
	var holds time.Duration
	var inside, across []time.Duration
	last := had{process: -1, to: released}
	for _, h := range all {
		require.False(t, seen[[2]int{h.process, h.waiter}], "each once")
		seen[[2]int{h.process, h.waiter}] = true
		require.False(t, h.from.Before(last.to) && last.process >= 0, "two at once: %v, %v", last, h)
		holds += h.to.Sub(h.from)
		if h.process == last.process {
			inside = append(inside, h.from.Sub(last.to))
		} else {
			across = append(across, h.from.Sub(last.to))
		}
		last = h
	}
	took := last.to.Sub(released)
	t.Logf("%v for %v of holding, %.1f %% more; %s inside a process, %s across",
		took, holds, 100*float64(took-holds)/float64(holds), spread(inside), spread(across))
	require.LessOrEqual(t, took, holds+holds/5+5*time.Second)
}

func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("%d hand-overs (median %v, longest %v)", len(all),
		all[len(all)/2].Round(10*time.Microsecond), all[len(all)-1].Round(10*time.Microsecond))
}

// The twin: callers that each have their own Locker all ask.
func TestManyLockersInOneProcessAllAsk(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	store := open(t, proxy.URL())
	first, err := locker(t, store, lock.WithBudget(patient)).Acquire(t.Context(), "user=42")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range waitersEach {
		l := locker(t, store, lock.WithBudget(patient), lock.WithWait(time.Minute))
		wg.Go(func() { _, _ = l.Acquire(ctx, "user=42") })
	}
	before := proxy.Commands("set")
	require.Eventually(t, func() bool { return proxy.Commands("set")-before >= manyClaims }, 10*time.Second, 10*time.Millisecond)
	cancel()
	wg.Wait()
	require.NoError(t, first.Release(t.Context()))
}
