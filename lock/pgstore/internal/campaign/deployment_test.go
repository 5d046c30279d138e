package campaign_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

var (
	rateFlag   = flag.Float64("campaign.rate", 100, "orders a second while processes start; half of what the machine can do, if that is less")
	windowFlag = flag.Duration("campaign.window", 4*time.Second, "for how long there are orders, without processes that start and with them")
)

const (
	starters = 10
	patience = 2500 * time.Millisecond // of a process that runs Schema
)

// Ten processes start while orders come at a steady rate, and VACUUM has its lock on both
// tables. No order waits for the lock of a table. The processes of the twin run Schema, whose
// CREATE INDEX IF NOT EXISTS locks the table before it looks. Processes that only connect show the
// cost of a start for the machine.
func TestDeployment(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures orders during VACUUM")
	d := deploy(t)
	report := fmt.Sprintf("%.0f orders a second, of %.0f that 32 callers in a closed loop place, while VACUUM has both tables:\n", d.rate, d.capacity)
	for _, starts := range []string{"", "Connect", "Open", "Schema"} {
		w := d.window(starts)
		report += w.String()
		switch starts {
		case "Schema":
			require.Positive(t, w.waits, report)
			require.Greater(t, w.slowest(), patience/2, report)
		default:
			require.NoError(t, w.failure, report)
			require.Zero(t, w.waits, report)
			require.Less(t, w.slowest(), d.vacuums, "VACUUM was waited for: %s", report)
			d.requireOnce()
		}
	}
	t.Log("\n" + report)
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "deployment-pg.txt"), []byte(report), 0o600))
	}
}

// deployment is a shop of two processes with its own server.
type deployment struct {
	t       *testing.T
	cluster *pgtest.Cluster
	db, url string
	lockers [2]*lock.Locker

	capacity, rate float64       // orders a second
	vacuums        time.Duration // VACUUM goes on for so long when the processes have started
	begun, placed  atomic.Int64  // orders
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{
		t: t, cluster: pgtest.Start(t, "fsync=on", "shared_buffers=128MB", "log_lock_waits=on", "deadlock_timeout=20ms"),
		vacuums: *windowFlag * 3 / 4,
	}
	d.db = d.cluster.Database(t)
	d.url = d.cluster.URL(d.db, "postgres")
	for i := range d.lockers {
		store, err := pgstore.Open(t.Context(), d.url+"&pool_max_conns=8")
		require.NoError(t, err)
		t.Cleanup(store.Close)
		d.lockers[i] = lock.New(store, lock.WithTransaction(), lock.WithBudget(10*time.Second))
		t.Cleanup(func() { require.NoError(t, d.lockers[i].Close(context.WithoutCancel(t.Context()))) })
	}
	// VACUUM pauses at each page that has something to remove.
	d.cluster.Exec(t, d.db, `
		CREATE TABLE orders (name text);
		INSERT INTO orders SELECT repeat('o', 1000) FROM generate_series(1, 21000);
		INSERT INTO latch_entries SELECT int8send(i), '', 1, '', '', 0, now() + interval '1 day', 0, repeat('r', 1000)::bytea, now() + interval '1 day'
			FROM generate_series(1, 15000) AS i;
		DELETE FROM orders WHERE random() < 0.5;
		DELETE FROM latch_entries WHERE random() < 0.5`)
	d.capacity = d.closedLoop(time.Second)
	d.rate = min(*rateFlag, d.capacity/2)
	return d
}

// closedLoop returns how many orders a second 32 callers place.
func (d *deployment) closedLoop(long time.Duration) float64 {
	before, until := d.placed.Load(), time.Now().Add(long)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for time.Now().Before(until) {
				_ = d.place()
			}
		})
	}
	all.Wait()
	return float64(d.placed.Load()-before) / long.Seconds()
}

// place places the next order.
func (d *deployment) place() error {
	n := d.begun.Add(1)
	name := fmt.Sprintf("order %d", n)
	_, _, err := d.lockers[n%2].Once(d.t.Context(), name, nil, func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.Tx(ctx)
		_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", name)
		return []byte(name), err
	})
	if err == nil {
		d.placed.Add(1)
	}
	return err
}

func (d *deployment) requireOnce() {
	var rows, names int64
	err := pgxtest.Connect(d.t, d.cluster.URL(d.db, "")).QueryRow(d.t.Context(),
		"SELECT count(*), count(DISTINCT name) FROM orders WHERE name LIKE 'order %'").Scan(&rows, &names)
	require.NoError(d.t, err)
	require.Equal(d.t, rows, names)
	require.Equal(d.t, d.placed.Load(), rows)
}

// window counts the outcomes of the orders of one time.
type window struct {
	starts string // the work of the processes that start; "": none starts
	opened []time.Duration
	waits  int // for the lock of a table, of more than deadlock_timeout

	mu      sync.Mutex
	took    []time.Duration // since each order was due, sorted
	failed  int
	failure error // the first
}

func (w *window) note(took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.took = append(w.took, took); err != nil {
		w.failed++
		if w.failure == nil {
			w.failure = err
		}
	}
}

func (w *window) slowest() time.Duration { return w.took[len(w.took)-1] }

func (w *window) String() string {
	at := func(of []time.Duration, part float64) time.Duration {
		return of[int(part*float64(len(of)-1))].Round(100 * time.Microsecond)
	}
	text := "no process starts"
	if w.starts != "" {
		text = fmt.Sprintf("%d processes start and %s, in %v to %v", len(w.opened), w.starts, at(w.opened, 0), at(w.opened, 1))
	}
	return fmt.Sprintf("%s: %d orders, %d failed, p50 %v, p99 %v, the slowest %v; %d waits for the lock of a table\n",
		text, len(w.took), w.failed, at(w.took, 0.5), at(w.took, 0.99), at(w.took, 1), w.waits)
}

var tableWait = regexp.MustCompile(`still waiting for \w+ on relation`)

// window has orders come, each when it is due, and processes start after a quarter of the time.
func (d *deployment) window(starts string) *window {
	w := &window{starts: starts}
	endVacuum := d.vacuum()
	logged := len(d.cluster.Log())
	began := time.Now()
	var all sync.WaitGroup
	if starts != "" {
		all.Go(func() {
			time.Sleep(*windowFlag - d.vacuums)
			w.opened = d.startAll(starts)
		})
	}
	for i := range int(d.rate * windowFlag.Seconds()) {
		due := began.Add(time.Duration(float64(i) / d.rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		all.Go(func() {
			err := d.place()
			w.note(time.Since(due), err)
		})
	}
	time.Sleep(time.Until(began.Add(*windowFlag)))
	endVacuum()
	all.Wait()
	slices.Sort(w.took)
	w.waits = len(tableWait.FindAllString(d.cluster.Log()[logged:], -1))
	return w
}

// vacuum begins VACUUM of both tables, which lasts until end.
func (d *deployment) vacuum() (end func()) {
	ctx, cancel := context.WithCancel(d.t.Context())
	var all sync.WaitGroup
	for _, table := range []string{"orders", "latch_entries"} {
		conn := pgxtest.Connect(d.t, d.cluster.URL(d.db, ""))
		_, err := conn.Exec(ctx, "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
		require.NoError(d.t, err)
		all.Go(func() { _, _ = conn.Exec(ctx, "VACUUM "+table) }) // is cancelled
	}
	look := pgxtest.Connect(d.t, d.cluster.URL(d.db, ""))
	running := func() bool {
		var n int
		err := look.QueryRow(d.t.Context(), "SELECT count(*) FROM pg_stat_progress_vacuum WHERE datname = current_database()").Scan(&n)
		return err == nil && n == 2
	}
	require.Eventually(d.t, running, 20*time.Second, time.Millisecond)
	return func() {
		require.True(d.t, running(), "VACUUM has ended before the orders did")
		cancel()
		all.Wait()
	}
}

const (
	startsEnv = "CAMPAIGN_STARTS" // the work of the process
	urlEnv    = "CAMPAIGN_URL"
)

// startAll starts processes, and returns how long each took, sorted.
func (d *deployment) startAll(starts string) []time.Duration {
	took := make([]time.Duration, starters)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			began := time.Now()
			cmd := exec.CommandContext(d.t.Context(), os.Args[0], "-test.run=^TestStart$")
			cmd.Env = append(os.Environ(), startsEnv+"="+starts, urlEnv+"="+d.url)
			out, err := cmd.CombinedOutput()
			took[i] = time.Since(began)
			if starts != "Schema" && err != nil {
				d.t.Errorf("a process that starts: %v: %s", err, out)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// TestStart is not a test: it is the program of a process that TestDeployment starts.
func TestStart(t *testing.T) {
	starts, url := os.Getenv(startsEnv), os.Getenv(urlEnv)
	switch starts {
	case "":
		t.Skip("only as another process")
	case "Open":
		store, err := pgstore.Open(t.Context(), url)
		require.NoError(t, err)
		store.Close()
	default:
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
		if starts == "Schema" {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = conn.Exec(ctx, pgstore.Schema)
			require.NoError(t, err)
		}
	}
}
