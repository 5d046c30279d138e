//go:build unix

package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// TestKillLoopOverPostgres: two desks, of which a random one is killed every second, take
// 200 orders of clients that repeat until they have an answer.
func TestKillLoopOverPostgres(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "kills a process a second until 200 orders are placed")
	t.Parallel()
	const orders, clients = 200, 8
	db := newDatabase(t)
	// The lease is short, since it is what an order waits for whose desk was killed.
	pair := newPair(t, "-postgres", db.url, "-work", "200ms", "-lease", "2s", "-budget", "1s")

	work := make(chan int, orders)
	for i := range orders {
		work <- i
	}
	close(work)
	answers := make([]string, orders)
	var cut atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := range work {
				answers[i] = pair.orderUntilPlaced(i, &cut)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	kills := pair.killUntil(done)

	t.Logf("%d kills, %d requests without an answer", kills, cut.Load())
	require.GreaterOrEqual(t, kills, 5)
	require.Positive(t, cut.Load(), "no desk was killed while it had a request")
	require.Equal(t, orders, db.count(t, "SELECT count(*) FROM orders"))
	require.Equal(t, orders, db.count(t, "SELECT count(DISTINCT sku) FROM orders"))
	for i, answered := range answers {
		require.Equal(t, 1, db.count(t, "SELECT count(*) FROM orders WHERE sku = $1 AND id = $2::json->>'id'", sku(i), answered), answered)
		again := pair.orderUntilPlaced(i, &cut)
		require.Equal(t, answered, again)
	}
	require.Equal(t, orders, db.count(t, "SELECT count(*) FROM orders"), "those were replays")
}

func sku(i int) string { return fmt.Sprintf("sku-%d", i) }

// pair are two desks, which clients ask at random.
type pair struct {
	t     *testing.T
	args  []string
	desks [2]atomic.Pointer[process]
}

func newPair(t *testing.T, args ...string) *pair {
	t.Helper()
	p := &pair{t: t, args: args}
	for i := range p.desks {
		p.desks[i].Store(p.start())
	}
	return p
}

// start starts a desk whose clients use a connection once: net/http itself repeats a request
// with a key whose connection it has used before, and what a kill cuts would not be counted.
func (p *pair) start() *process {
	p.t.Helper()
	d := startProcess(p.t, p.args...)
	d.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return d
}

// orderUntilPlaced repeats the order i until it has an answer of 2xx, which it returns. cut
// counts the tries that had none at all.
func (p *pair) orderUntilPlaced(i int, cut *atomic.Int64) string {
	header := []string{"X-User-ID", fmt.Sprintf("user-%d", i), "Idempotency-Key", fmt.Sprintf("key-%d", i)}
	body := fmt.Sprintf(`{"sku":%q,"quantity":1}`, sku(i))
	for ; p.t.Context().Err() == nil; time.Sleep(20 * time.Millisecond) {
		d := p.desks[rand.IntN(2)].Load()
		got, err := d.try(http.MethodPost, "/orders", body, header...)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), "connection refused") {
				cut.Add(1)
			}
		case got.status/100 == 2:
			return got.body
		}
	}
	return "the test is over"
}

// killUntil kills a random desk every second, and starts it again, until done is closed.
func (p *pair) killUntil(done <-chan struct{}) (kills int) {
	p.t.Helper()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-done:
			return kills
		case <-second.C:
		}
		which := rand.IntN(2)
		victim := p.desks[which].Load()
		require.NoError(p.t, victim.cmd.Process.Kill())
		_ = victim.cmd.Wait() // killed is its end
		p.desks[which].Store(p.start())
		kills++
	}
}

// TestPausedHolderOverPostgres: a desk that stands still for longer than its lease, with a
// row that it has written and not committed, finds out that another has the order by then.
// Without the transaction the order is there twice.
func TestPausedHolderOverPostgres(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args    []string
		written string // how many orders the first has written, seen from outside
		orders  int    // afterwards
	}{
		"transaction": {
			nil, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE 'INSERT INTO orders %'", 1,
		},
		"none": {[]string{"-transaction=false", "-abandoned", "rerun"}, "SELECT count(*) FROM orders", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lease = 2 * time.Second
			db := newDatabase(t)
			args := append([]string{"-postgres", db.url, "-lease", lease.String(), "-budget", "1s", "-work", "0s"}, tt.args...)
			paused, successor := startProcess(t, args...), startProcess(t, args...)
			first := paused.inBackground("Idempotency-Key", "k", "X-Linger", "4s")
			require.Eventually(t, func() bool { return db.count(t, tt.written) == 1 }, 10*time.Second, time.Millisecond)
			require.NoError(t, paused.cmd.Process.Signal(syscall.SIGSTOP))

			var second reply
			require.Eventually(t, func() bool {
				second = successor.order("42", "Idempotency-Key", "k")
				return second.status == http.StatusCreated
			}, 20*time.Second, 10*time.Millisecond, "%v", second)
			require.Empty(t, second.header.Get("Idempotent-Replayed"), "it was paused before its commit")

			require.NoError(t, paused.cmd.Process.Signal(syscall.SIGCONT))
			got := <-first
			require.Equal(t, tt.orders, db.count(t, "SELECT count(*) FROM orders"))
			switch got.status {
			case http.StatusCreated:
				require.Equal(t, second.body, got.body, "one key has one answer")
			case http.StatusServiceUnavailable: // it was paused before it had read the reply to its INSERT, and then the time of its work was over
				require.Contains(t, got.body, "The orders cannot be reached.")
			default:
				requireProblem(t, http.StatusConflict, got)
				require.True(t, tt.orders > 1 || strings.Contains(got.body, "#in-progress"), "that is known: %s", got.body)
			}
			again := paused.served("42", "Idempotency-Key", "k")
			require.Equal(t, second.body, again.body)
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			require.Equal(t, tt.orders, db.count(t, "SELECT count(*) FROM orders"))
		})
	}
}

// TestPausedDeskOverPostgres: a desk stands still for two leases with twelve orders, of which
// two are written, two are not, and eight wait for a connection. Another desk places eight of
// them meanwhile, and works on four. The clients of the first get the answers of the other, or
// in-progress: none of them gets outcome-unknown.
func TestPausedDeskOverPostgres(t *testing.T) {
	t.Parallel()
	const orders, placed, lease = 12, 8, 4 * time.Second
	db := newDatabase(t)
	args := []string{"-postgres", db.url + "&pool_max_conns=4", "-lease", lease.String(), "-budget", "2s", "-work", "0s"} // for a busy machine
	paused, successor := startProcess(t, args...), startProcess(t, args...)
	place := func(p *process, i int, header ...string) reply {
		return p.served(fmt.Sprintf("user-%d", i), append(header, "Idempotency-Key", fmt.Sprintf("key-%d", i))...)
	}
	inBackground := func(p *process, from, to int, header func(i int) []string) func() []reply {
		replies := make([]reply, to-from)
		var all sync.WaitGroup
		for i := from; i < to; i++ {
			all.Go(func() { replies[i-from] = place(p, i, header(i)...) })
		}
		return func() []reply { all.Wait(); return replies }
	}

	first := inBackground(paused, 0, orders, func(i int) []string { return []string{[]string{"X-Work", "X-Linger"}[i%2], "12s"} })
	require.Eventually(t, func() bool {
		return db.count(t, "SELECT count(*) FROM latch_entries WHERE key LIKE 'once:%' AND token <> ''") == orders && paused.acquired() == 4
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, paused.cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(2 * lease)

	theirs := make([]reply, placed)
	for i := range theirs {
		theirs[i] = place(successor, i)
		require.Equal(t, http.StatusCreated, theirs[i].status, theirs[i].body)
	}
	working := inBackground(successor, placed, orders, func(int) []string { return []string{"X-Linger", "6s"} })
	require.Eventually(t, func() bool { return successor.acquired() == orders }, 10*time.Second, time.Millisecond)
	require.NoError(t, paused.cmd.Process.Signal(syscall.SIGCONT))

	got := first()
	theirs = append(theirs, working()...)
	for i, their := range theirs {
		require.Equal(t, http.StatusCreated, their.status, their.body)
		if got[i].status != http.StatusCreated {
			requireProblem(t, http.StatusConflict, got[i])
			// On a busy machine, an order that has waited for a connection meets the other desk's lock of its
			// user before its own loss is noticed.
			require.Regexp(t, "#(in-progress|held)", got[i].body)
			require.GreaterOrEqual(t, i, placed, "the order is placed")
			got[i] = place(paused, i)
		}
		require.Equal(t, their.body, got[i].body, "one key has one answer")
		require.Equal(t, "true", got[i].header.Get("Idempotent-Replayed"))
	}
	require.Equal(t, orders, db.count(t, "SELECT count(*) FROM orders"))
}
