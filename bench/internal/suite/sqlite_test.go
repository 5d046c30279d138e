package suite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

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
	_, err := openSQL(b, "sqlite", t.URL).ExecContext(b.Context(), `INSERT INTO latch_entries
		WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT ?3)
		SELECT CAST('other/' || hex(randomblob(16)) AS BLOB), x'74', 1, NULL, x'61', 0, 1, zeroblob(148), ?1 + n * ?2, ?1 + n * ?2 FROM s`,
		time.Now().Add(-staysFor).UnixMicro(), every.Microseconds(), n)
	require.NoError(b, err)
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
