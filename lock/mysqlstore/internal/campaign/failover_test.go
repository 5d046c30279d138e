package campaign_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/link"
	"github.com/httplatch/httplatch/internal/testkit/mysqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

var failoversFlag = flag.Int("campaign.failovers", 0, "how many failovers there are from a primary to its semi-synchronous replica; 0: none, and no twins")

func skipFailovers(t *testing.T) {
	t.Helper()
	if *failoversFlag == 0 {
		t.Skip("not in this run: fails over between two servers, with -campaign.failovers")
	}
	t.Parallel()
}

// Processes order as in TestOnce. Again and again the primary is killed and its replica is
// promoted, which has a row for each order that was answered, with the same answer.
func TestFailovers(t *testing.T) {
	skipFailovers(t)
	w := startPair(t, waits, 0, mysqltest.SemiSynchronous()...)
	w.Run(w, once.Plan{Processes: 8, Callers: 1, Until: func() bool { return t.Failed() || w.plays.Total() >= *failoversFlag }}, 0)
	require.Empty(t, w.Check(w), "%s", w.report())
	require.Zero(t, w.lost)
	once.Save(t, "mysql-failovers", w.report())
}

// The twins: the same check finds them.
func TestFailoversCatch(t *testing.T) {
	skipFailovers(t)
	for name, start := range map[string]func(t *testing.T) *pair{
		"asynchronous": func(t *testing.T) *pair { t.Helper(); return startPair(t, waitsNot, 200*time.Millisecond) },
		"replays what it reads": func(t *testing.T) *pair {
			t.Helper()
			w := startPair(t, waits, 0, mysqltest.SemiSynchronous()...)
			w.broken = func(s *mysqlstore.Store, db *sql.DB) transactor { return looks{s, db} }
			w.troubles = troubles[len(troubles)-1:] // the primary has recovered
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			w.Run(w, once.Plan{Processes: 8, Callers: 1, Twin: true, Until: func() bool { return t.Failed() || w.plays.Total() >= 60 }}, 0)
			require.Positive(t, w.lost, "it was not found out:\n%s", w.report())
		})
	}
}

// looks answers by a receipt as soon as it can be read.
type looks struct {
	*mysqlstore.Store

	db *sql.DB
}

func (s looks) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e := lock.Entry{State: lock.Settled, Left: time.Hour}
	err := s.db.QueryRowContext(ctx, "SELECT fingerprint, receipt FROM latch_entries WHERE lock_key = ? AND settled = 1", []byte(key)).Scan(&e.Fingerprint, &e.Receipt)
	if err == nil {
		return e, nil
	}
	return s.Store.Claim(ctx, key, c)
}

// pair is a primary with its replica, and the campaign there.
type pair struct {
	*shop

	replication
	settings []string // of both
	troubles []trouble
	hosts    [2]*mysqltest.Server
	link     *link.Link // from the replica to the primary
	front    *link.Link // to the primary, from the processes of which no balancer chooses the host
	lag      time.Duration
	wire     once.Counts // faults of statements
	plays    once.Counts // failovers
	lost     int

	mu      sync.Mutex
	primary int
}

const customer = "customer" // the user of the processes

// replication is whether COMMITs of the primary wait for the replica.
type replication string

const (
	waits    replication = "ON"
	waitsNot replication = "OFF"
)

func startPair(t *testing.T, how replication, lag time.Duration, settings ...string) *pair {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "fails over between two servers")
	w := &pair{replication: how, settings: settings, troubles: troubles, lag: lag, link: link.New(t), front: link.New(t)}
	for i := range w.hosts {
		w.hosts[i] = mysqltest.Start(t, mysqltest.Replicated(i+1, settings...)...)
	}
	first := w.hosts[0]
	first.Exec(t, "", "CREATE DATABASE shop")
	w.shop = shopOf(t, first, "shop", nil)
	first.User(t, customer, w.name)
	first.Exec(t, "", w.waiting())
	w.begin(0)
	return w
}

// waiting is the statement that has a primary wait for its replica.
func (w *pair) waiting() string {
	return "SET GLOBAL rpl_semi_sync_master_enabled = " + string(w.replication)
}

// begin has the host of a number be the primary, and the other one follow it.
func (w *pair) begin(primary int) {
	at, other := w.hosts[primary], w.hosts[1-primary]
	w.mu.Lock()
	w.primary = primary
	w.mu.Unlock()
	at.Configure(mysqltest.Replicated(1+primary, append(w.settings, "rpl-semi-sync-master-enabled="+string(w.replication))...)...)
	other.Configure(mysqltest.Replicated(2-primary, w.settings...)...)
	w.front.To(at.Addr())
	w.link.To(at.Addr())
	other.Follow(w.t, at, w.link.Addr(), w.name)
	other.User(w.t, customer, w.name)
	at.AwaitReplica(w.t, other)
	w.link.Delay(w.lag)
}

// Orders is part of [once.Shop].
func (w *pair) Orders(ctx context.Context) (all []once.Row, ok bool) {
	w.mu.Lock()
	at := w.hosts[w.primary]
	w.mu.Unlock()
	return ordersAt(ctx, w.t, at, w.name)
}

func ordersAt(ctx context.Context, t *testing.T, at *mysqltest.Server, name string) (all []once.Row, ok bool) {
	t.Helper()
	db := open(t, at.DSN(name, ""))
	defer db.Close()
	return ordersOf(ctx, db)
}

// Open is part of [once.Shop]. Every other process has a balancer that does not know which host is the primary.
func (w *pair) Open(r *rand.Rand) once.Process {
	f := &faults{counts: &w.wire, over: w.Over, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))}
	upstreams := []string{w.front.Addr()}
	if r.IntN(2) == 0 {
		upstreams = []string{w.hosts[0].Addr(), w.hosts[1].Addr()}
	}
	var proxies []*mysqlproxy.Proxy
	for _, upstream := range upstreams {
		proxies = append(proxies, mysqlproxy.Start(w.t, upstream, f.decide))
	}
	return w.process(f, w.hosts[0].DSN(w.name, customer, "interpolateParams=true", "rejectReadOnly=true"), proxies...)
}

// trouble precedes the death of a primary.
type trouble struct {
	name string
	make func(w *pair, primary, replica *mysqltest.Server, wait func())
}

var troubles = []trouble{
	{"none", func(*pair, *mysqltest.Server, *mysqltest.Server, func()) {}},
	{"the link is cut", func(w *pair, _, _ *mysqltest.Server, wait func()) {
		w.link.Cut()
		wait()
	}},
	{"the link was cut", func(w *pair, primary, _ *mysqltest.Server, wait func()) {
		w.link.Cut()
		wait()
		w.link.To(primary.Addr())
		wait()
	}},
	{"the replica stands still", func(_ *pair, _, replica *mysqltest.Server, wait func()) {
		replica.Pause()
		wait()
	}},
	{"the link is cut, and sessions whose COMMIT waits were ended", func(w *pair, primary, _ *mysqltest.Server, wait func()) {
		w.link.Cut()
		wait()
		w.endWaiting(primary)
		wait()
	}},
	{"the primary was demoted", func(w *pair, primary, _ *mysqltest.Server, wait func()) {
		primary.Exec(w.t, "", "SET GLOBAL read_only = ON")
		wait()
	}},
	{"the link is cut, and the primary has recovered from a crash", func(w *pair, primary, _ *mysqltest.Server, wait func()) {
		w.link.Cut()
		wait()
		primary.Kill()
		primary.Restart(w.t)
		wait()
	}},
}

// endWaiting ends the sessions that wait for the replica.
func (w *pair) endWaiting(primary *mysqltest.Server) {
	db := open(w.t, primary.DSN("", ""))
	defer db.Close()
	rows, err := db.QueryContext(w.t.Context(), "SELECT id FROM information_schema.processlist WHERE state LIKE '%semi-sync%' AND user = ?", customer)
	require.NoError(w.t, err)
	var ids []int
	for rows.Next() {
		var id int
		require.NoError(w.t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(w.t, errorsOf(rows))
	for _, id := range ids {
		_, _ = db.ExecContext(w.t.Context(), "KILL CONNECTION "+strconv.Itoa(id)) // it may have ended
		w.Paths.Add("a COMMIT that waits was ended")
	}
}

func errorsOf(rows *sql.Rows) error {
	err := rows.Err()
	_ = rows.Close()
	return err
}

// Strike is part of [once.Shop]. It kills the primary and promotes its replica.
func (w *pair) Strike(ctx context.Context, r *rand.Rand) {
	for w.Pause(ctx, time.Duration(500+r.IntN(1000))*time.Millisecond) {
		w.failover(w.troubles[w.plays.Total()%len(w.troubles)], func() { time.Sleep(time.Duration(300+r.IntN(1200)) * time.Millisecond) })
	}
}

func (w *pair) failover(before trouble, wait func()) {
	dead, heir := w.hosts[w.primary], w.hosts[1-w.primary]
	before.make(w, dead, heir, wait)
	known := w.Known()
	dead.Kill()
	w.link.Cut()
	if strings.Contains(before.name, "stands still") {
		heir.Resume()
	}
	heir.Promote(w.t, w.waiting())
	rows, ok := ordersAt(w.t.Context(), w.t, heir, w.name)
	require.True(w.t, ok)
	wrong := once.Missing(known, rows)
	w.lost += len(wrong)
	for _, lost := range wrong[:min(3, len(wrong))] {
		w.Complain("after a failover (%s): %s", before.name, lost)
	}
	w.plays.Add(before.name)
	if !w.Over() || len(wrong) == 0 {
		w.begin(1 - w.primary)
	}
}

func (w *pair) report() string {
	b := new(strings.Builder)
	b.WriteString(w.Report(w))
	fmt.Fprintf(b, "%d failovers, %d answered orders lost\n", w.plays.Total(), w.lost)
	w.plays.Write(b)
	b.WriteString("faults of statements\n")
	w.wire.Write(b)
	b.WriteString("answers\n")
	w.Answers.Write(b)
	return b.String()
}
