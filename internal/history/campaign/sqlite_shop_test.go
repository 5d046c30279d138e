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
	fileLease  = 600 * time.Millisecond
	fileBudget = 300 * time.Millisecond
)

// fileShop is a file, and the campaign there.
type fileShop struct {
	*once.Campaign

	t    *testing.T
	path string
	twin string // "": none
	db   *sql.DB

	mu     sync.Mutex
	killed map[string]bool // answers of orders that have ended with their process
}

func startFile(t *testing.T, twin string) shop {
	t.Helper()
	w := &fileShop{Campaign: once.New(t), t: t, twin: twin, path: filepath.Join(t.TempDir(), "shop.db"), killed: map[string]bool{}}
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

func (w *fileShop) campaign() *once.Campaign { return w.Campaign }

func (w *fileShop) plan() once.Plan { return once.Plan{Processes: 4, Callers: 2} }

func (*fileShop) rare() []string {
	return []string{"killed, and committed", "killed, and not committed", "settle after a takeover", "settle failed, not committed", "stopped, and committed"}
}

func (w *fileShop) Orders(ctx context.Context) (all []once.Row, ok bool) { return ordersOf(ctx, w.db) }

// Strike is part of [once.Shop]. Another program locks the files, reads them for long, and has
// their logs written back.
func (w *fileShop) Strike(ctx context.Context, r *rand.Rand) {
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
func (w *fileShop) dies(answer []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed[string(answer)] = true
}

// rests counts which of the orders that have ended with their process were committed, and has SQLite
// look at its files.
func (w *fileShop) rests(t *testing.T) {
	t.Helper()
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
	if !w.Over() {
		return
	}
	for _, path := range []string{w.path, w.path + "-latch"} {
		var report string
		require.NoError(t, openFile(t, path).QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&report))
		require.Equal(t, "ok", report, path)
	}
}

// step is a moment of an order in its process.
type step string

const (
	atClaim  step = "claim"  // from the call on
	atWork   step = "work"   // before its first statement
	atRow    step = "row"    // after the row was inserted
	atSettle step = "settle" // from the call on
	atAnswer step = "answer" // after COMMIT
)

// fault strikes an order at a step, after a delay.
type fault struct {
	Do    string        `json:",omitempty"`
	At    step          `json:",omitempty"`
	After time.Duration `json:",omitempty"`
	For   time.Duration `json:",omitempty"` // of a stop
}

// The kinds of faults.
const (
	doKill      = "killed"
	doStop      = "stopped"
	doLeave     = "its client is gone"
	doOutlast   = "longer than a lease"
	doInterrupt = "a statement is interrupted"
	doFill      = "the disk is full"
	doFail      = "the work fails"
)

func (f fault) name() string { return string(f.At) + ": " + f.Do }

// draw draws the fault of an order: none in two of three.
func draw(r *rand.Rand) fault {
	if r.IntN(3) != 0 {
		return fault{}
	}
	steps := []step{atClaim, atWork, atRow, atSettle, atSettle, atAnswer}
	f := fault{At: steps[r.IntN(len(steps))], After: time.Duration(r.IntN(300)) * time.Microsecond}
	if f.At == atSettle {
		f.After = time.Duration(r.IntN(3000)) * time.Microsecond // somewhere in the two commits
	}
	switch n := r.IntN(20); {
	case n < 6:
		f.Do = doKill
	case n < 9:
		f.Do, f.For = doStop, time.Duration(r.IntN(200))*time.Millisecond
		if r.IntN(4) == 0 {
			f.For = fileLease + time.Duration(r.IntN(600))*time.Millisecond
		}
	case n < 12:
		f.Do = doLeave
	case n < 14:
		f.Do, f.At = doOutlast, []step{atWork, atRow}[r.IntN(2)]
	case n < 16:
		f.Do, f.At = doInterrupt, []step{atWork, atRow}[r.IntN(2)]
	case n < 18:
		f.Do, f.At = doFill, []step{atWork, atRow}[r.IntN(2)]
	default:
		f.Do, f.At = doFail, []step{atWork, atRow}[r.IntN(2)]
	}
	return f
}
