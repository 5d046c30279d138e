//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// pairs are the servers that fail over. usual is how many times they do if no number is asked for.
var pairs = []struct {
	name     string
	usual    int
	of       func() dialect
	troubles []trouble
	twins    []string
}{
	{"postgres", 6, func() dialect { return &postgres{} }, append(troubles, ended), names(postgresFailoverTwins)},
	{"mariadb", 0, func() dialect { return mariadb{} }, troubles, names(mariadbFailoverTwins)},
}

// Processes order as in TestOnce, by every route to a primary and its replica. Again and again the
// primary is killed and its replica is promoted, which has a row for each order that was answered,
// with the same answer, and none that was reported as rolled back.
func TestFailovers(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "fails over between two servers")
	t.Parallel()
	for _, on := range pairs {
		t.Run(on.name, func(t *testing.T) {
			n := skipFailovers(t, on.usual)
			w := startPair(t, on.of(), &pair{waits: true, troubles: on.troubles})
			w.Run(w, once.Plan{Processes: 8, Callers: 1, Until: func() bool { return t.Failed() || w.plays.Total() >= n }}, 0)
			require.Empty(t, w.Check(w), "%s", w.report())
			require.Zero(t, w.lost.Load())
			once.Save(t, on.name+"-failovers", w.report())
		})
	}
}

// The twins: the same check finds them.
func TestFailoversCatch(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "fails over between two servers")
	t.Parallel()
	for _, on := range pairs {
		for _, twin := range append(on.twins, "asynchronous") {
			t.Run(on.name+"/"+twin, func(t *testing.T) {
				skipFailovers(t, on.usual)
				p := &pair{waits: true, planted: twin, troubles: on.troubles[3:]}
				switch twin {
				case "asynchronous":
					p = &pair{lag: 200 * time.Millisecond, troubles: on.troubles}
				case "replays what it reads":
					p.troubles = on.troubles[4:] // a primary that has recovered shows what its replica does not have
				}
				w := startPair(t, on.of(), p)
				found := func() bool { return w.lost.Load() > 0 }
				w.Run(w, once.Plan{Processes: 8, Callers: 1, Twin: true, Found: found, Until: func() bool { return t.Failed() || w.plays.Total() >= 60 }}, 0)
				require.True(t, found(), "it was not found out:\n%s", w.report())
			})
		}
	}
}

func skipFailovers(t *testing.T, usual int) (n int) {
	t.Helper()
	if n = *failoversFlag; n < 0 {
		n = usual
	}
	if n == 0 {
		t.Skip("not in this run: fails over between two servers, with -campaign.failovers")
	}
	t.Parallel()
	return n
}

// pair is a primary with its replica, and the campaign there.
type pair struct {
	*serverShop

	waits    bool   // COMMITs of the primary wait for the replica
	planted  string // the name of a twin
	troubles []trouble
	surveyed bool // the replica has every row that the primary shows to readers
	lag      time.Duration
	hosts    [2]host
	link     *cutproxy.Proxy // from the replica to the primary
	front    *cutproxy.Proxy // to the primary, from processes that do not choose the host
	wire     once.Counts     // faults of exchanges
	plays    once.Counts     // failovers
	lost     atomic.Int64

	mu      sync.Mutex
	primary int
	now     *sql.DB // of the primary
}

func startPair(t *testing.T, d dialect, w *pair) *pair {
	t.Helper()
	w.link, w.front = cutproxy.Start(t, ""), cutproxy.Start(t, "")
	d.pair(t, w)
	w.lease, w.budget, w.leaveOdds = time.Second, 300*time.Millisecond, 8 // a COMMIT that waits for the replica outlasts them
	w.begin(0)
	w.link.Delay(w.lag)
	t.Cleanup(func() { require.NoError(t, w.at().Close()) })
	return w
}

// begin has the host of a number be the primary.
func (w *pair) begin(primary int) {
	w.front.To(w.hosts[primary].Addr())
	now := w.admin(w.t, w.hosts[primary], w.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil {
		_ = w.now.Close()
	}
	w.primary, w.now = primary, now
}

// at returns the database of the primary.
func (w *pair) at() *sql.DB {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *pair) Orders(ctx context.Context) (all []once.Row, ok bool) { return ordersOf(ctx, w.at()) }

// Open is part of [once.Shop]. A process reaches the primary by an address that moves with it,
// through a balancer that does not know which host it is, by a list of both hosts, or through
// PgBouncer.
func (w *pair) Open(r *rand.Rand) once.Process {
	to, both := connect{db: w.name, paired: true}, []string{w.hosts[0].Addr(), w.hosts[1].Addr()}
	switch r.IntN(4) {
	case 0:
		return w.process(&w.wire, r, to, both...)
	case 1:
		r.Shuffle(2, func(i, j int) { both[i], both[j] = both[j], both[i] })
		to.listed = true
		return w.process(&w.wire, r, to, both...)
	case 2:
		if d, is := w.dialect.(*postgres); is {
			return w.process(&w.wire, r, to, d.bouncer.Addr())
		}
	}
	return w.process(&w.wire, r, to, w.front.Addr())
}

// trouble precedes the death of a primary.
type trouble struct {
	name  string
	make  func(w *pair, primary, replica host, wait func())
	shows bool // the server itself shows readers rows that no replica has
}

var troubles = []trouble{
	{"none", func(*pair, host, host, func()) {}, false},
	{"the link was cut", func(w *pair, primary, _ host, wait func()) {
		w.link.Break()
		wait()
		w.link.To(primary.Addr())
		wait()
	}, false},
	{"the replica stands still", func(_ *pair, _, replica host, wait func()) {
		replica.Pause()
		wait()
	}, false},
	{"the link is cut", func(w *pair, _, _ host, wait func()) {
		w.link.Break()
		wait()
	}, false},
	{"the link is cut, and the primary has recovered from a crash", func(w *pair, primary, _ host, wait func()) {
		w.link.Break()
		wait()
		w.recovers(w.t, w, primary)
		wait()
	}, true},
}

// ended is for PostgreSQL: MariaDB then confirms other commits of the same group.
var ended = trouble{"the link is cut, and sessions whose COMMIT waits were ended", func(w *pair, _, _ host, wait func()) {
	w.link.Break()
	wait()
	if ask(w.t.Context(), w.at(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0 {
		w.Paths.Add("a COMMIT that waits was ended")
	}
	wait()
}, true}

// Strike is part of [once.Shop]. It kills the primary and promotes its replica.
func (w *pair) Strike(ctx context.Context, r *rand.Rand) {
	for w.Pause(ctx, time.Duration(500+r.IntN(1000))*time.Millisecond) {
		w.failover(w.troubles[w.plays.Total()%len(w.troubles)], func() { time.Sleep(time.Duration(300+r.IntN(1200)) * time.Millisecond) })
	}
}

func (w *pair) failover(before trouble, wait func()) {
	dead, heir := w.hosts[w.primary], w.hosts[1-w.primary]
	before.make(w, dead, heir, wait)
	known, seen := w.Known(), map[string][]byte{}
	if w.surveyed && !before.shows {
		rows, _ := w.Orders(w.t.Context())
		for _, o := range rows {
			seen[o.Name] = o.Answer
		}
	}
	dead.Kill()
	w.link.Break()
	heir.Resume()
	w.promote(w.t, w, heir)
	w.link.Delay(0)
	w.begin(1 - w.primary)
	rows, ok := w.Orders(w.t.Context())
	require.True(w.t, ok)
	wrong := slices.Concat(once.Missing(known, rows), once.Missing(seen, rows), w.InRows(rows))
	w.lost.Add(int64(len(wrong)))
	for _, text := range wrong[:min(3, len(wrong))] {
		w.Complain("after a failover (%s): %s", before.name, text)
	}
	w.plays.Add(before.name)
	if !w.Over() || len(wrong) == 0 {
		w.link.To(heir.Addr())
		w.follow(w.t, w, heir, dead)
		w.link.Delay(w.lag)
	}
}

func (w *pair) report() string {
	b := new(strings.Builder)
	b.WriteString(w.Report(w))
	fmt.Fprintf(b, "%d failovers, %d orders with another outcome than was answered\n", w.plays.Total(), w.lost.Load())
	w.plays.Write(b)
	b.WriteString("faults of exchanges\n")
	w.wire.Write(b)
	b.WriteString("answers\n")
	w.Answers.Write(b)
	return b.String()
}
