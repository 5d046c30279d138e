package suite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
)

// onMariaDB is a server, and what its threads have cost.
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
	pid, err := os.ReadFile(path)
	require.NoError(b, err)
	return &onMariaDB{s, db, strings.TrimSpace(string(pid)), map[string]float64{}}
}

// openSQL opens a database for as long as the benchmark runs. It is no contender's.
func openSQL(b *testing.B, driver, dsn string) *sql.DB {
	b.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(b, err)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

func (m *onMariaDB) exec(b *testing.B, statement string) {
	b.Helper()
	_, err := m.db.ExecContext(b.Context(), statement)
	require.NoError(b, err)
}

// target returns a database whose clients send each statement with its values.
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

// schemaOf returns the name of the database of a DSN.
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
