package suite_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

type onPostgres struct {
	*pgtest.Cluster

	conn *pgx.Conn
	cpu  map[string]float64 // of each of its processes, when it was last seen
}

// startPostgres starts a server with the settings that it has unless set otherwise, except
// max_connections, since all contenders have their pools at once. Tests have others.
func startPostgres(b *testing.B) *onPostgres {
	b.Helper()
	c := pgtest.Start(b, "fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=128MB", "max_wal_size=1GB", "max_connections=300")
	return &onPostgres{c, connect(b, c.DatabaseURL(b)), map[string]float64{}}
}

// connect connects for as long as the benchmark runs. It is no contender's.
func connect(b *testing.B, url string) *pgx.Conn {
	b.Helper()
	conn := must.Get(pgx.Connect(b.Context(), url))(b)
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
	return conn
}

func execute(b *testing.B, conn *pgx.Conn, sql string) {
	b.Helper()
	must.Get(conn.Exec(b.Context(), sql))(b)
}

func (p *onPostgres) target(b *testing.B) shop.Target {
	b.Helper()
	return shop.Target{URL: p.DatabaseURL(b), Pool: buyersPool}
}

func (*onPostgres) hurried(_ *testing.B, t shop.Target, do func(t shop.Target)) {
	t.URL += "&synchronous_commit=off"
	do(t)
}

// spent returns the WAL, and the CPU of all processes of the server.
func (p *onPostgres) spent(b *testing.B) spending {
	b.Helper()
	var backend int
	var wal, server float64
	err := p.conn.QueryRow(b.Context(), `SELECT pg_backend_pid(), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&backend, &wal)
	require.NoError(b, err)
	postmaster := parentOf(backend)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", postmaster, postmaster))
	for pid := range strings.FieldsSeq(string(children)) {
		if cpu := cpuOf("/proc/" + pid + "/schedstat"); cpu > 0 {
			p.cpu[pid] = cpu
		}
	}
	for _, cpu := range p.cpu {
		server += cpu
	}
	return charge(b, server, wal)
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

// room reports the sizes of the table and its indexes, dead rows included.
func (*onPostgres) room(b *testing.B, t shop.Target, n int) {
	b.Helper()
	var table, keys, sweep, rows float64
	err := connect(b, t.URL).QueryRow(b.Context(), `SELECT pg_table_size('latch_entries')::float8, pg_relation_size('latch_entries_pkey')::float8,
		pg_relation_size('latch_entries_sweep_at')::float8, (SELECT count(*) FROM latch_entries)::float8`).Scan(&table, &keys, &sweep, &rows)
	require.NoError(b, err)
	require.GreaterOrEqual(b, rows, float64(n))
	b.ReportMetric(table/rows, report.TableBytes)
	b.ReportMetric(keys/rows, report.IndexBytes)
	b.ReportMetric(sweep/rows, report.SweepBytes)
}

// age has the server look after tables once in a minute of the hour, as it does. Receipts that have ended are
// removed at once.
func (p *onPostgres) age(b *testing.B, _ shop.Target, _ int, _ time.Duration) {
	b.Helper()
	p.Exec(b, "postgres", fmt.Sprintf("ALTER SYSTEM SET autovacuum_naptime = %d", max(1, int(play.Seconds()/60))))
	p.Exec(b, "postgres", "SELECT pg_reload_conf()")
}

func (*onPostgres) looker(b *testing.B, t shop.Target) func(ctx context.Context) (look, error) {
	b.Helper()
	conn := connect(b, t.URL)
	return func(ctx context.Context) (l look, err error) {
		err = conn.QueryRow(ctx, `
SELECT count(*)::float8, (count(*) FILTER (WHERE ends_at <= clock_timestamp()))::float8,
	coalesce(pg_stat_get_dead_tuples('latch_entries'::regclass), 0)::float8, pg_total_relation_size('latch_entries') / 1e6
FROM latch_entries`).Scan(&l.rows, &l.over, &l.dead, &l.megabytes)
		return l, err
	}
}

// slowFlushes make the server wait for a millisecond before it flushes a commit, together with
// the commits of that time, as a disk over a network does.
const slowFlushes = "&commit_delay=1000&commit_siblings=0"

const someBuyers = 8

func (p *onPostgres) measureSerializable(b *testing.B, c shop.Contender) {
	b.Helper()
	s := openShop(b, c, shop.Target{URL: p.DatabaseURL(b) + "&default_transaction_isolation=serializable", Pool: someBuyers})
	r := must.Get(load.Steady(b.Context(), someBuyers, *window/5, 3**window, ordering(s), func() {}))(b)
	reportTimes(b, r)
}

const grow = `INSERT INTO latch_entries SELECT convert_to('other/' || n, 'UTF8'), '', 1, '', '', 0, now() + interval '1 day', 0, '', now() + interval '1 day'
	FROM generate_series(1, 60000) n`

// measureGrown measures orders beside 60,000 rows whose statements were planned beside 60, and
// again when the server knows how many there are.
func (p *onPostgres) measureGrown(b *testing.B, round int) {
	b.Helper()
	url := p.DatabaseURL(b)
	s := must.Get(shop.All(shop.PostgreSQL)[0].Open(b.Context(), shop.Target{URL: url, Pool: someBuyers}))(b)
	defer func() { require.NoError(b, s.Close(b.Context())) }() // the server has no connections for all rounds
	conn := must.Get(pgx.Connect(b.Context(), url))(b)
	defer func() { _ = conn.Close(b.Context()) }()
	times(b, 1, 10, ordering(s))
	execute(b, conn, `ALTER TABLE latch_entries SET (autovacuum_enabled = off)`)
	execute(b, conn, `ANALYZE latch_entries`)
	times(b, 1, 50, ordering(s)) // which are planned by what ANALYZE has seen
	execute(b, conn, grow)
	for _, who := range []string{"before ANALYZE", "after ANALYZE"} {
		_, err := load.Closed(b.Context(), someBuyers, *window, ordering(s)) // connections prepare their statements
		require.NoError(b, err)
		measure(b, round, shop.PostgreSQL+", order, 8 callers, 60,000 rows after 60", who, func(b *testing.B) {
			r := must.Get(load.Closed(b.Context(), someBuyers, 2**window, ordering(s)))(b)
			reportTimes(b, r)
		})
		execute(b, conn, `ANALYZE latch_entries`)
	}
}

func reportHeapOnly(b *testing.B, url string) {
	b.Helper()
	var percent float64
	err := connect(b, url).QueryRow(b.Context(),
		`SELECT 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'latch_entries'`).Scan(&percent)
	require.NoError(b, err)
	b.ReportMetric(percent, report.HeapOnly)
}
