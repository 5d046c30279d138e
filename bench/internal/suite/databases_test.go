package suite_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
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

func openShop(b *testing.B, c shop.Contender, t shop.Target) shop.Shop {
	b.Helper()
	s := must.Get(c.Open(b.Context(), t))(b)
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

func ordering(s shop.Shop) load.Op {
	return func(ctx context.Context, _, _ int) error { return s.Order(ctx, newKey()) }
}

// warmUp has every connection opened, and its statements prepared, as warm does.
func warmUp(b *testing.B, s shop.Shop, also func(ctx context.Context, caller int) error) {
	b.Helper()
	must.Get(load.Steady(b.Context(), buyersPool, 0, size(2*time.Second, 50*time.Millisecond), func(ctx context.Context, caller, _ int) error {
		return errors.Join(also(ctx, caller), s.Order(ctx, newKey()))
	}, func() {}))(b)
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
	client := must.Get(processCPU())(b)
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

func measureShop(b *testing.B, e engine, db database, callers int, op load.Op) {
	b.Helper()
	warm(b, callers, op)
	before := db.spent(b)
	r := must.Get(closed(b, callers, op)())(b)
	after := db.spent(b)
	reportTimes(b, r)
	costs := map[string]float64{report.ClientCPU: after.client - before.client, report.ServerCPU: after.server - before.server, report.Log: after.log - before.log}
	for _, unit := range e.units {
		b.ReportMetric(costs[unit]/float64(max(1, len(r.Took))), unit)
	}
}

type onMariaDB struct {
	*mysqltest.Server

	db  *sql.DB            // no contender's
	pid string             // of the server
	cpu map[string]float64 // of each of its threads, when it was last seen
}

// startMariaDB starts a server with the settings that it has unless set otherwise, except
// max_connections, since all contenders have their pools at once, and a buffer pool that has room for a million receipts.
func startMariaDB(b *testing.B) database {
	b.Helper()
	s := mysqltest.Start(b, "innodb-flush-log-at-trx-commit=1", "innodb-buffer-pool-size=1G", "max-connections=500")
	db := openSQL(b, "mysql", s.DSN("", ""))
	var path string
	require.NoError(b, db.QueryRowContext(b.Context(), "SELECT @@pid_file").Scan(&path))
	pid := must.Get(os.ReadFile(path))(b)
	return &onMariaDB{s, db, strings.TrimSpace(string(pid)), map[string]float64{}}
}

// openSQL opens a database for as long as the benchmark runs. It is no contender's.
func openSQL(b *testing.B, driver, dsn string) *sql.DB {
	b.Helper()
	db := must.Get(sql.Open(driver, dsn))(b)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

func (m *onMariaDB) exec(b *testing.B, statement string) {
	b.Helper()
	must.Get(m.db.ExecContext(b.Context(), statement))(b)
}

func (m *onMariaDB) target(b *testing.B) shop.Target {
	b.Helper()
	return shop.Target{URL: m.DatabaseDSN(b, "interpolateParams=true"), Pool: buyersPool}
}

func (m *onMariaDB) hurried(b *testing.B, t shop.Target, do func(t shop.Target)) {
	b.Helper()
	m.exec(b, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
	defer m.exec(b, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	do(t)
}

// spent returns the redo log, and the CPU of all threads of the server.
func (m *onMariaDB) spent(b *testing.B) spending {
	b.Helper()
	var log, server float64
	err := m.db.QueryRowContext(b.Context(), "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_lsn_current'").Scan(&log)
	require.NoError(b, err)
	threads, _ := filepath.Glob("/proc/" + m.pid + "/task/*/schedstat")
	for _, thread := range threads {
		m.cpu[thread] = cpuOf(thread)
	}
	for _, cpu := range m.cpu {
		server += cpu
	}
	return charge(b, server, log)
}

func schemaOf(t shop.Target) string {
	_, name, _ := strings.Cut(t.URL, "/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

// room reports the sizes of the table, which is the index of the keys, and of its other index.
func (m *onMariaDB) room(b *testing.B, t shop.Target, n int) {
	b.Helper()
	name := schemaOf(t)
	m.exec(b, "ANALYZE TABLE "+name+".latch_entries")
	var rows, table, sweep float64
	require.NoError(b, m.db.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM "+name+".latch_entries").Scan(&rows))
	require.GreaterOrEqual(b, rows, float64(n))
	err := m.db.QueryRowContext(b.Context(), `SELECT SUM(IF(index_name = 'PRIMARY', stat_value, 0)) * @@innodb_page_size, SUM(IF(index_name = 'over_at', stat_value, 0)) * @@innodb_page_size
		FROM mysql.innodb_index_stats WHERE database_name = ? AND table_name = 'latch_entries' AND stat_name = 'size'`, name).Scan(&table, &sweep)
	require.NoError(b, err)
	b.ReportMetric(table/rows, report.TableBytes)
	b.ReportMetric(sweep/rows, report.SweepBytes)
}

// staysFor is the time for which the store keeps a row that has ended, over MariaDB and SQLite.
const staysFor = 10 * time.Minute

func (m *onMariaDB) age(b *testing.B, t shop.Target, n int, every time.Duration) {
	b.Helper()
	m.exec(b, fmt.Sprintf(`INSERT INTO %[1]s.latch_entries SELECT CONCAT('other/', MD5(seq)), 't', 1, '', 'a-host-name:12345', 0, 1, REPEAT('r', 148), at, at FROM (
		SELECT seq, %[2]d + seq * %[3]d AS at FROM %[1]s.seq_1_to_%[4]d) AS s`, schemaOf(t), time.Now().Add(-staysFor).UnixMicro(), every.Microseconds(), n))
}

func (m *onMariaDB) looker(b *testing.B, t shop.Target) func(ctx context.Context) (look, error) {
	b.Helper()
	name := schemaOf(t)
	return func(ctx context.Context) (l look, err error) {
		err = m.db.QueryRowContext(ctx, fmt.Sprintf(`SELECT COUNT(*), SUM(over_at < ?),
	(SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'),
	(SELECT file_size / 1e6 FROM information_schema.innodb_sys_tablespaces WHERE name = '%[1]s/latch_entries')
FROM %[1]s.latch_entries`, name), time.Now().Add(-staysFor).UnixMicro()).Scan(&l.rows, &l.over, &l.dead, &l.megabytes)
		return l, err
	}
}

// onSQLite is a directory with files. The contenders are in this process, and so is all that they cost.
type onSQLite struct{}

func startSQLite(*testing.B) database { return onSQLite{} }

// fullSync is the end of a DSN. It has a commit wait for the disk, as sqlitestore.Open does.
const fullSync = "_pragma=synchronous(FULL)"

func (onSQLite) target(b *testing.B) shop.Target {
	b.Helper()
	path := filepath.Join(b.TempDir(), "shop.db")
	return shop.Target{URL: "file:" + path + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&" + fullSync, Pool: buyersPool}
}

func (onSQLite) hurried(_ *testing.B, t shop.Target, do func(t shop.Target)) {
	t.URL = strings.Replace(t.URL, fullSync, "_pragma=synchronous(OFF)", 1)
	do(t)
}

func (onSQLite) spent(b *testing.B) spending {
	b.Helper()
	return charge(b, 0, 0)
}

// room reports the sizes of the table, which is the index of the keys, and of its other index.
func (onSQLite) room(b *testing.B, t shop.Target, n int) {
	b.Helper()
	var rows, table, sweep float64
	err := openSQL(b, "sqlite", t.URL).QueryRowContext(b.Context(), `SELECT (SELECT COUNT(*) FROM latch_entries),
		(SELECT SUM(pgsize) FROM dbstat WHERE name = 'latch_entries'), (SELECT SUM(pgsize) FROM dbstat WHERE name = 'latch_entries_over_at')`).Scan(&rows, &table, &sweep)
	require.NoError(b, err)
	require.GreaterOrEqual(b, rows, float64(n))
	b.ReportMetric(table/rows, report.TableBytes)
	b.ReportMetric(sweep/rows, report.SweepBytes)
}

func (onSQLite) age(b *testing.B, t shop.Target, n int, every time.Duration) {
	b.Helper()
	must.Get(openSQL(b, "sqlite", t.URL).ExecContext(b.Context(), `INSERT INTO latch_entries
		WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT ?3)
		SELECT CAST('other/' || hex(randomblob(16)) AS BLOB), x'74', 1, NULL, x'61', 0, 1, zeroblob(148), ?1 + n * ?2, ?1 + n * ?2 FROM s`,
		time.Now().Add(-staysFor).UnixMicro(), every.Microseconds(), n))(b)
}

func (onSQLite) looker(b *testing.B, t shop.Target) func(ctx context.Context) (look, error) {
	b.Helper()
	db := openSQL(b, "sqlite", t.URL)
	path, _, _ := strings.Cut(strings.TrimPrefix(t.URL, "file:"), "?")
	return func(ctx context.Context) (l look, err error) {
		err = db.QueryRowContext(ctx, `SELECT COUNT(*), SUM(over_at < ?), (SELECT SUM(pgsize) / 1e6 FROM dbstat WHERE name LIKE 'latch_entries%') FROM latch_entries`,
			time.Now().Add(-staysFor).UnixMicro()).Scan(&l.rows, &l.over, &l.megabytes)
		if claims, failed := os.Stat(path + "-latch"); failed == nil {
			l.megabytes += float64(claims.Size()) / 1e6
		}
		return l, err
	}
}
