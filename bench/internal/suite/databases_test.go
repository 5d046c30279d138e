package suite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

var databaseFlag = flag.String("db", "postgres mariadb sqlite", "transactions, receipts and clean-up: over which databases")

const buyersPool = 32 // connections of each contender

// database is a server with the settings that it has unless set otherwise, or a directory of files.
type database interface {
	// target returns a new, empty database.
	target(b *testing.B) shop.Target
	// hurried calls do with a target of the same database whose commits do not wait for the disk.
	hurried(b *testing.B, t shop.Target, do func(t shop.Target))
	// spent returns what was spent since the start, 0 where that is not known.
	spent(b *testing.B) spending
	// room reports the sizes of the table of n receipts and of its indexes.
	room(b *testing.B, t shop.Target, n int)
	// age prepares for an hour that is played. If the store keeps receipts that have ended for a while, it leaves n, one
	// of which is to be removed every so often from now on.
	age(b *testing.B, t shop.Target, n int, every time.Duration)
	// looker returns a function that looks at the table of receipts.
	looker(b *testing.B, t shop.Target) func(ctx context.Context) (look, error)
}

// engine is a kind of database.
type engine struct {
	flag, name string
	start      func(b *testing.B) database
	units      []string // of costs
	rate       float64  // orders a second of the play of CleanUp
}

var engines = []engine{
	{"postgres", shop.PostgreSQL, func(b *testing.B) database { b.Helper(); return startPostgres(b) }, []string{report.ClientCPU, report.ServerCPU, report.Log}, 2000},
	{"mariadb", shop.MariaDB, startMariaDB, []string{report.ClientCPU, report.ServerCPU, report.Log}, 500},
	{"sqlite", shop.SQLite, startSQLite, []string{report.ClientCPU}, 500},
}

// chosen are the engines of the flag.
func chosen(b *testing.B) (some []engine) {
	b.Helper()
	names := strings.Fields(*databaseFlag)
	for _, e := range engines {
		if slices.Contains(names, e.flag) {
			some = append(some, e)
		}
	}
	require.Len(b, some, len(names), "-db %q", *databaseFlag)
	return some
}

// openShop opens a contender for as long as the benchmark runs.
func openShop(b *testing.B, c shop.Contender, t shop.Target) shop.Shop {
	b.Helper()
	s, err := c.Open(b.Context(), t)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close(context.WithoutCancel(b.Context()))) })
	return s
}

// newKey is one that no caller has had, and in no order, like the UUIDs of clients.
func newKey() string { return fmt.Sprintf("user=1&key=%016x%016x", rand.Uint64(), rand.Uint64()) }

func newKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = newKey()
	}
	return keys
}

// ordering orders under new keys.
func ordering(s shop.Shop) load.Op {
	return func(ctx context.Context, _, _ int) error { return s.Order(ctx, newKey()) }
}

// warmUp has every connection opened, and its statements prepared, as warm does.
func warmUp(b *testing.B, s shop.Shop, also func(ctx context.Context, caller int) error) {
	b.Helper()
	_, err := load.Steady(b.Context(), buyersPool, 0, size(2*time.Second, 50*time.Millisecond), func(ctx context.Context, caller, _ int) error {
		return errors.Join(also(ctx, caller), s.Order(ctx, newKey()))
	}, func() {})
	require.NoError(b, err)
}

// stock keeps answers that are replayed, a few at a time, and warms up with them.
func stock(b *testing.B, s shop.Shop, kept []string) {
	b.Helper()
	times(b, 2, len(kept), func(ctx context.Context, caller, n int) error { return s.Keep(ctx, kept[2*n+caller]) })
	warmUp(b, s, func(ctx context.Context, caller int) error { return s.Replay(ctx, kept[caller%len(kept)]) })
}

// spending was spent since the start: CPU by this process and by the server, and bytes of the server's log.
type spending struct{ client, server, log float64 }

// charge returns what was spent by this process beside what the server has.
func charge(b *testing.B, server, log float64) spending {
	b.Helper()
	client, err := processCPU()
	require.NoError(b, err)
	return spending{client, server, log}
}

// cpuOf returns the CPU time of a thread or a process of one thread in microseconds, 0 where there is no /proc.
func cpuOf(schedstat string) float64 {
	text, err := os.ReadFile(schedstat)
	if err != nil {
		return 0
	}
	nanos, _, _ := strings.Cut(string(text), " ")
	cpu, _ := strconv.ParseFloat(nanos, 64)
	return cpu / 1e3
}

// measureShop reports times and costs of op.
func measureShop(b *testing.B, e engine, db database, callers int, op load.Op) {
	b.Helper()
	warm(b, callers, op)
	before := db.spent(b)
	r, err := closed(b, callers, op)()
	require.NoError(b, err)
	after := db.spent(b)
	reportTimes(b, r)
	costs := map[string]float64{report.ClientCPU: after.client - before.client, report.ServerCPU: after.server - before.server, report.Log: after.log - before.log}
	for _, unit := range e.units {
		b.ReportMetric(costs[unit]/float64(max(1, len(r.Took))), unit)
	}
}
