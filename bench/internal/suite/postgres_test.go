package suite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

const buyersPool = 32 // connections of each contender

// startPostgres starts a server with the settings that it has unless set otherwise, except
// max_connections, since all contenders have their pools at once. Tests have others.
func startPostgres(b *testing.B, settings ...string) *pgtest.Cluster {
	b.Helper()
	return pgtest.Start(b, append([]string{
		"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=128MB", "max_wal_size=1GB", "max_connections=300",
	}, settings...)...)
}

// openShop opens a contender for as long as the benchmark runs.
func openShop(b *testing.B, c shop.Contender, t shop.Target) shop.Shop {
	b.Helper()
	s, err := c.Open(b.Context(), t)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close(context.WithoutCancel(b.Context()))) })
	return s
}

// connect connects for as long as the benchmark runs. It is no contender's.
func connect(b *testing.B, url string) *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
	return conn
}

func execute(b *testing.B, conn *pgx.Conn, sql string) {
	b.Helper()
	_, err := conn.Exec(b.Context(), sql)
	require.NoError(b, err)
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

// postgresMeter reads the cost to a server.
type postgresMeter struct {
	conn *pgx.Conn
	cpu  map[string]float64 // of each of its processes, when it was last seen
}

// spending was spent since the start, by this process and by the server.
type spending struct{ client, server, wal float64 }

func meterPostgres(b *testing.B, url string) *postgresMeter {
	b.Helper()
	return &postgresMeter{connect(b, url), map[string]float64{}}
}

// spending returns the WAL, and the CPU of all processes of the server, 0 where there is no /proc.
func (m *postgresMeter) spending(b *testing.B) (s spending) {
	b.Helper()
	var backend int
	err := m.conn.QueryRow(b.Context(), `SELECT pg_backend_pid(), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&backend, &s.wal)
	require.NoError(b, err)
	postmaster := parentOf(backend)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", postmaster, postmaster))
	for pid := range strings.FieldsSeq(string(children)) {
		if text, err := os.ReadFile("/proc/" + pid + "/schedstat"); err == nil {
			nanos, _, _ := strings.Cut(string(text), " ")
			m.cpu[pid], _ = strconv.ParseFloat(nanos, 64)
		}
	}
	for _, nanos := range m.cpu {
		s.server += nanos / 1e3
	}
	s.client, err = processCPU()
	require.NoError(b, err)
	return s
}

// parentOf returns the number of the process that has started another, "" if it cannot be read.
func parentOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), ") ") // behind the name, which may have blanks
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// measureShop reports times and costs of op.
func measureShop(b *testing.B, m *postgresMeter, callers int, op load.Op) {
	b.Helper()
	warm(b, callers, op)
	before := m.spending(b)
	r, err := closed(b, callers, op)()
	require.NoError(b, err)
	after := m.spending(b)
	reportTimes(b, r)
	each := func(unit string, all float64) { b.ReportMetric(all/float64(max(1, len(r.Took))), unit) }
	each(report.ClientCPU, after.client-before.client)
	each(report.ServerCPU, after.server-before.server)
	each(report.WAL, after.wal-before.wal)
}
