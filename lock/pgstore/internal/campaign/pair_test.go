package campaign_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// pair is a primary with its standby, and the services that order there.
type pair struct {
	t       *testing.T
	began   time.Time
	sync    bool // COMMITs wait for the standby
	broken  func(*pgstore.Store, *pgxpool.Pool) lock.Store
	r       *rand.Rand
	hosts   [2]*pgtest.Cluster
	primary int
	link    *pgtest.Link
	bouncer *pgtest.Bouncer

	troubles []trouble
	patience time.Duration // for which callers ask in one round

	faults, paths, plays once.Counts
	once.Book
	services []*service

	mu       sync.Mutex
	round    int
	quiet    bool // no more faults
	over     bool // no more new orders
	next     int
	lone     int
	promoted bool                // the standby of this round is the primary
	early    map[string][][]byte // answers that an asynchronous standby may not have
	given    map[string]bool     // orders of which all requests have certainly failed, and that are not asked for again
	requests int
	lost     int
}

const shopName = "postgres"

func startPair(t *testing.T, waits bool, seed uint64, broken func(*pgstore.Store, *pgxpool.Pool) lock.Store) *pair {
	t.Helper()
	w := &pair{t: t, troubles: troubles, patience: time.Minute, began: time.Now(), sync: waits, broken: broken, r: rand.New(rand.NewPCG(seed, 0)), early: map[string][][]byte{}, given: map[string]bool{}}
	w.link = pgtest.NewLink(t)
	settings := []string{"max_connections=200", "wal_retrieve_retry_interval=50ms", w.link.Conninfo()}
	a := pgtest.Start(t, settings...)
	a.Exec(t, shopName, "UPDATE pg_database SET datistemplate = false")
	a.Exec(t, shopName, "DROP DATABASE template0")
	a.Exec(t, shopName, "DROP DATABASE template1") // so that there is little to copy
	a.Exec(t, shopName, "CREATE TABLE orders (name text, answer bytea)")
	store, err := pgstore.Open(t.Context(), a.URL(shopName, ""))
	require.NoError(t, err)
	store.Close()
	if waits {
		a.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'") // the copies of its data have it, too
		a.Exec(t, "postgres", "SELECT pg_reload_conf()")
	}
	w.link.To(a.Addr())
	w.hosts = [2]*pgtest.Cluster{a, a.Standby(t, settings...)}
	w.bouncer = pgtest.PgBouncer(t, a.Addr(), "max_client_conn=1000", "default_pool_size=40", "server_login_retry=0")
	w.awaitStandby()
	for i := range routes {
		w.services = append(w.services, w.newService(i))
	}
	t.Cleanup(func() {
		for _, s := range w.services {
			s.end()
		}
	})
	return w
}

func (w *pair) awaitStandby() {
	state := "async"
	if w.sync {
		state = "sync"
	}
	w.hosts[w.primary].AwaitStandby(w.t, state)
}

// active is the number of keys that are in use at the same time.
const active = 4

// orders returns the rows that were committed, none while the primary does not answer.
func (w *pair) orders() []once.Row {
	rows, _ := ordersOf(w.t.Context(), w.hosts[w.primary].URL(shopName, ""))
	return rows
}

type trouble struct {
	name  string
	make  func(w *pair, primary, standby *pgtest.Cluster, wait func())
	shows bool // the server itself shows readers rows that no standby has
}

// troubles precede the death of a primary. Some outlast it.
var troubles = []trouble{
	{"none", func(*pair, *pgtest.Cluster, *pgtest.Cluster, func()) {}, false},
	{"the link is cut", func(w *pair, _, _ *pgtest.Cluster, wait func()) {
		w.link.Cut()
		wait()
	}, false},
	{"the link was cut", func(w *pair, primary, _ *pgtest.Cluster, wait func()) {
		w.link.Cut()
		wait()
		w.link.To(primary.Addr())
		wait()
	}, false},
	{"the link is cut, and a backend was killed: the primary has recovered", func(w *pair, primary, _ *pgtest.Cluster, wait func()) {
		w.link.Cut()
		wait()
		kill(primary)
		time.Sleep(pairBudget) // for that
		wait()
	}, true},
	{"the link is cut, and sessions whose COMMIT waits were ended", func(w *pair, primary, _ *pgtest.Cluster, wait func()) {
		w.link.Cut()
		wait()
		ask(primary, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		wait()
	}, true},
	{"a backend was killed: the primary has recovered", func(_ *pair, primary, _ *pgtest.Cluster, wait func()) {
		kill(primary)
		wait()
	}, true},
	{"the standby stands still", func(_ *pair, _, standby *pgtest.Cluster, wait func()) {
		standby.Pause()
		wait()
	}, false},
	{"the standby stood still", func(_ *pair, _, standby *pgtest.Cluster, wait func()) {
		standby.Pause()
		wait()
		standby.Resume()
		wait()
	}, false},
}

// kill kills a process that serves the shop, after which the server ends all sessions and
// recovers.
func kill(c *pgtest.Cluster) {
	if pid := ask(c, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() ORDER BY random() LIMIT 1"); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ask returns the number that a statement returns, 0 if there is no answer.
func ask(c *pgtest.Cluster, sql string) (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(shopName, ""))
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	_ = conn.QueryRow(ctx, sql).Scan(&n)
	return n
}

// failover is a round: the primary dies while orders come in, the standby takes its place, and a
// copy of the new primary becomes the standby. It returns when all orders have their answer.
func (w *pair) failover() {
	w.mu.Lock()
	w.round++
	w.next, w.quiet, w.over, w.promoted = 0, false, false, false
	w.mu.Unlock()
	if !w.sync || w.r.IntN(2) == 0 { // it lags
		w.link.Delay(time.Duration(w.r.IntN(100)) * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), w.patience)
	defer cancel()
	var callers sync.WaitGroup
	for range pairCallers {
		dice := rand.New(rand.NewPCG(w.r.Uint64(), w.r.Uint64()))
		callers.Go(func() { w.call(ctx, dice) })
	}
	time.Sleep(time.Duration(100+w.r.IntN(400)) * time.Millisecond)
	dead, heir := w.hosts[w.primary], w.hosts[1-w.primary]
	trouble := w.troubles[w.r.IntN(len(w.troubles))]
	w.plays.Add(trouble.name)
	trouble.make(w, dead, heir, func() { time.Sleep(time.Duration(w.r.IntN(800)) * time.Millisecond) })
	seen := w.orders()
	dead.Kill()
	w.link.Cut()
	heir.Resume()
	heir.Promote(w.t)
	w.primary = 1 - w.primary
	w.bouncer.To(w.t, heir.Addr())
	if w.sync {
		w.survey(seen, trouble.shows)
	}
	w.link.To(heir.Addr())
	dead.Follow(w.t, heir)
	w.mu.Lock()
	w.promoted, w.over = true, true
	w.mu.Unlock()
	time.Sleep(time.Duration(w.r.IntN(200)) * time.Millisecond)
	w.mu.Lock()
	w.quiet = true
	w.mu.Unlock()
	w.link.Delay(0)
	callers.Wait()
	for _, name := range w.losses() {
		if w.r.IntN(2) == 0 { // its client asks again
			w.order(ctx, name, false, w.r)
		}
	}
	w.repeat(ctx)
	if ctx.Err() != nil {
		w.Complain("round %d: not all orders were answered within %v", w.round, w.patience)
	}
	for _, s := range w.services {
		if w.r.IntN(4) == 0 { // a deployment
			s.restart()
		}
	}
}

// survey compares the answers of the primary, and the rows that it has shown to readers, with the
// rows right after a failover.
func (w *pair) survey(seen []once.Row, shows bool) {
	before := w.Known()
	rows := w.orders()
	for _, wrong := range once.Missing(before, rows) {
		w.Complain("after failover %d: %s", w.round, wrong)
	}
	if shows {
		return
	}
	visible := map[string][]byte{}
	for _, o := range seen {
		visible[o.Name] = o.Answer
	}
	for _, wrong := range once.Missing(visible, rows) {
		w.Complain("seen before failover %d, not answered: %s", w.round, wrong)
	}
}

// begins notes that a request begins, and reports whether it may be answered by the primary
// that is to die.
func (w *pair) begins() (early bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	return !w.promoted
}

// gets notes that an order was answered. Answers that an asynchronous standby may not have
// are looked at when the round is over.
func (w *pair) gets(name string, answer []byte, early bool) {
	if !early || w.sync {
		w.Gets(name, answer)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.early[name] = append(w.early[name], bytes.Clone(answer))
}

// losses counts the answers that the asynchronous standby did not have, and returns the
// orders.
func (w *pair) losses() (lost []string) {
	there := map[string][]byte{}
	for _, o := range w.orders() {
		there[o.Name] = o.Answer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, answers := range w.early {
		kept := slices.DeleteFunc(answers, func(a []byte) bool { return !bytes.Equal(there[name], a) })
		if len(kept) < len(answers) {
			lost = append(lost, name)
		}
		for _, answer := range kept {
			w.Gets(name, answer)
		}
	}
	w.lost += len(lost)
	clear(w.early)
	return lost
}

// gives notes that an order is given up, all of whose requests have certainly failed.
func (w *pair) gives(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given[name] = true
}

// check looks for violations when a round is over.
func (w *pair) check() (wrong []string) {
	rows := w.orders()
	wrong = w.Violations(rows)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range rows {
		if w.given[o.Name] {
			wrong = append(wrong, o.Name+" has certainly failed, and is there")
		}
	}
	return wrong
}

// pick returns the next order. A lone order has one caller. ok is false when no order is left.
func (w *pair) pick(r *rand.Rand) (name string, lone, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return "", false, false
	}
	if r.IntN(2) == 0 {
		w.lone++
		return fmt.Sprintf("round-%d-lone-%d", w.round, w.lone), true, true
	}
	if r.IntN(2*active) == 0 {
		w.next++
	}
	return fmt.Sprintf("round-%d-order-%d", w.round, w.next+r.IntN(active)), false, true
}

func (w *pair) isQuiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.quiet
}

// call makes one order after another. It repeats each until it is answered, or has certainly failed
// and is given up.
func (w *pair) call(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		name, lone, ok := w.pick(r)
		if !ok {
			return
		}
		w.order(ctx, name, lone, r)
	}
}

func (w *pair) order(ctx context.Context, name string, lone bool, r *rand.Rand) {
	certain := true
	for ctx.Err() == nil {
		switch w.services[r.IntN(len(w.services))].post(ctx, name, r) {
		case answered:
			return
		case unsure:
			certain = false
		case failed:
			if lone && certain && r.IntN(3) == 0 {
				w.gives(name)
				return
			}
		}
		time.Sleep(time.Duration(20+r.IntN(80)) * time.Millisecond)
	}
}

// repeat asks again for all that was answered in this round.
func (w *pair) repeat(ctx context.Context) {
	prefix := fmt.Sprintf("round-%d-", w.round)
	for name := range w.Known() {
		if strings.HasPrefix(name, prefix) {
			w.order(ctx, name, false, w.r)
		}
	}
}

func (w *pair) report(seed uint64) string {
	b := new(strings.Builder)
	kind := "asynchronous"
	if w.sync {
		kind = "synchronous"
	}
	fmt.Fprintf(b, "seed %d, %v\n", seed, time.Since(w.began).Round(time.Second))
	fmt.Fprintf(b, "%s standby: %d failovers, %d requests, %d orders, %d faults, %d answered orders lost\n",
		kind, w.round, w.requests, len(w.orders()), w.faults.Total(), w.lost)
	w.Answers.Write(b)
	b.WriteString("before the failover\n")
	w.plays.Write(b)
	b.WriteString("faults\n")
	w.faults.Write(b)
	b.WriteString("paths\n")
	w.paths.Write(b)
	fmt.Fprintf(b, "violations: %d\n", len(w.check()))
	return b.String()
}
