//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

const (
	lease  = 600 * time.Millisecond
	budget = 300 * time.Millisecond
)

// shop is a file, and the campaign there.
type shop struct {
	*once.Campaign

	t    *testing.T
	path string
	twin string // "": none
	db   *sql.DB

	mu     sync.Mutex
	killed map[string]bool // answers of orders that have ended with their process
}

func start(t *testing.T, twin string) *shop {
	t.Helper()
	w := &shop{Campaign: once.New(t), t: t, twin: twin, path: filepath.Join(t.TempDir(), "shop.db"), killed: map[string]bool{}}
	store, err := sqlitestore.Open(t.Context(), w.path)
	require.NoError(t, err)
	_, err = store.DB().ExecContext(t.Context(), "CREATE TABLE orders (name TEXT NOT NULL, answer BLOB NOT NULL)")
	store.Close()
	require.NoError(t, err)
	w.db = openFile(t, w.path)
	return w
}

// openFile returns a database for another program than the shop's.
func openFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// Orders is part of [once.Shop].
func (w *shop) Orders(ctx context.Context) (all []once.Row, ok bool) {
	rows, err := w.db.QueryContext(ctx, "SELECT name, answer FROM orders")
	if err != nil {
		return nil, false
	}
	defer rows.Close()
	for rows.Next() {
		var o once.Row
		if err := rows.Scan(&o.Name, &o.Answer); err != nil {
			return nil, false
		}
		all = append(all, o)
	}
	return all, rows.Err() == nil
}

// Strike is part of [once.Shop]. Another program locks the files, reads them for long, and has
// their logs written back.
func (w *shop) Strike(ctx context.Context, r *rand.Rand) {
	files := map[string]*sql.DB{"database": w.db, "claims": openFile(w.t, w.path+"-latch")}
	for w.Pause(ctx, time.Duration(100+r.IntN(1000))*time.Millisecond) {
		name := []string{"database", "claims"}[r.IntN(2)]
		how := []string{"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN; SELECT count(*) FROM sqlite_schema", "PRAGMA wal_checkpoint(TRUNCATE)"}[r.IntN(4)]
		conn, err := files[name].Conn(ctx)
		if err != nil {
			continue
		}
		if _, err = conn.ExecContext(ctx, how); err == nil {
			w.Faults.Add("other program: " + how + " of the " + name)
			w.Pause(ctx, time.Duration(r.IntN(700))*time.Millisecond)
		}
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		_ = conn.Close()
	}
}

// dies notes that an order has ended with its process.
func (w *shop) dies(answer []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed[string(answer)] = true
}

// lookUpKilled counts which of the orders that have ended with their process were committed.
func (w *shop) lookUpKilled() {
	rows, ok := w.Orders(w.t.Context())
	require.True(w.t, ok)
	there := map[string]bool{}
	for _, o := range rows {
		there[string(o.Answer)] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for answer := range w.killed {
		if there[answer] {
			w.Paths.Add("killed, and committed")
		} else {
			w.Paths.Add("killed, and not committed")
		}
	}
	clear(w.killed)
}

// misses reports whether there is a rare path that the campaign has not taken yet.
func (w *shop) misses(before *once.Counts) bool {
	w.lookUpKilled()
	return w.Misses(rarePaths, before)
}

// requireIntact has SQLite look at its files.
func (w *shop) requireIntact() {
	for _, path := range []string{w.path, w.path + "-latch"} {
		var report string
		require.NoError(w.t, openFile(w.t, path).QueryRowContext(w.t.Context(), "PRAGMA integrity_check").Scan(&report))
		require.Equal(w.t, "ok", report, path)
	}
}
