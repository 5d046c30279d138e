package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"slices"
	"time"

	"modernc.org/sqlite"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// session is a connection during one transaction of work.
type session struct {
	rowstore.Work

	store     *Store
	turn      bool // this session has the turn to write
	begun     bool // BEGIN was executed
	committed bool
}

func (s *Store) newSession(ctx context.Context) (w *session, err error) {
	if s.closed.Load() {
		return nil, rowstore.ErrClosed
	}
	w = &session{store: s}
	if err = w.Connect(ctx, s.db, known); err != nil {
		return nil, err
	}
	return w, w.Lend(ctx, s.out(), out, w.readyFor)
}

// takeTurn waits until no other work of this process writes to the database. Without it, each work
// would poll the lock of SQLite.
func (s *Store) takeTurn(ctx context.Context) error {
	select {
	case s.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("other work writes to the database: %w", context.Cause(ctx))
	}
}

func (s *Store) endTurn() { <-s.writer }

// ready begins the transaction for the first statement. Later it returns an error if SQLite has
// ended the transaction: the statement would be committed at once.
func (w *session) ready(ctx context.Context) error {
	switch {
	case !w.begun:
		return w.begin(ctx)
	case w.StmtErr == nil || w.open(ctx):
		w.StmtErr = nil
		return nil
	case code(w.StmtErr) == codeConstraint:
		return failure.Permanent(fmt.Errorf("%w: %w", errEnded, w.StmtErr))
	default:
		return failure.Transient(fmt.Errorf("%w: %w", errUndone, w.StmtErr))
	}
}

func (w *session) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*rowstore.LongestWait) // for the end of other work that writes to the database
	defer cancel()
	if err := w.store.takeTurn(ctx); err != nil {
		return failure.Transient(err)
	}
	for {
		err := w.exec(ctx, "BEGIN IMMEDIATE")
		if err == nil {
			w.turn, w.begun = true, true
			return nil
		}
		_ = w.exec(context.WithoutCancel(ctx), "ROLLBACK") // if it was interrupted after it had begun
		if !busy(err) || !takePause(ctx) {
			w.store.endTurn()
			return undone(err)
		}
	}
}

// open reports whether the transaction is open. SQLite begins none within another.
func (w *session) open(ctx context.Context) bool {
	ctx = context.WithoutCancel(ctx)
	err := w.exec(ctx, "BEGIN")
	if err == nil {
		_ = w.exec(ctx, "ROLLBACK")
	}
	return code(err) == codeError
}

func (w *session) exec(ctx context.Context, statement string, args ...any) error {
	_, err := w.change(ctx, statement, args...)
	return err
}

// change returns the number of rows that a statement has changed.
func (w *session) change(ctx context.Context, statement string, args ...any) (n int64, err error) {
	named := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	result, err := w.Conn.ExecContext(ctx, statement, named)
	if err == nil {
		n, err = result.RowsAffected()
	}
	return n, err
}

// commit writes a receipt and commits, unless there is a living receipt of another token. Now and
// then it removes receipts that have ended.
func (w *session) commit(ctx context.Context, r *rowstore.Row, now int64) error {
	s := w.store
	n, err := w.change(ctx, s.statements.leave, r.Values()...) // SQLite prepares it in half of the time
	if code(err) == codeConstraint {
		n, err = w.change(ctx, s.statements.settle, append(r.Values(), now)...)
	}
	if err == nil && n == 0 {
		return nil
	}
	if err == nil && s.settles.Add(1)%rowstore.SweepEvery == 0 {
		err = w.exec(ctx, s.statements.sweep, time.Now().Add(-rowstore.SweepAfter).UnixMicro(), int64(2*rowstore.SweepEvery))
	}
	if err != nil {
		return undone(err)
	}
	if err = w.exec(ctx, "COMMIT"); code(err) == codeIO {
		return failure.Of(fmt.Errorf("%w: %w", rowstore.ErrCommit, err))
	} else if err != nil {
		return undone(err)
	}
	w.committed, w.turn = true, false
	s.endTurn() // while the claim is removed, other work can begin
	return nil
}

// end gives the connection back. A connection that cannot roll back is closed.
func (w *session) end(ctx context.Context) {
	w.Stop()
	if w.begun && !w.committed && w.exec(ctx, "ROLLBACK") != nil && w.open(ctx) {
		_ = w.User.Raw(func(any) error { return driver.ErrBadConn })
	}
	if w.turn {
		w.store.endTurn()
	}
	_ = w.User.Close()
}

// known returns an error if a connection does not come from modernc.org/sqlite. A second SQLite
// library in the process would break the file locks of the first.
func known(conn any) error {
	if _, ok := conn.(sqlite.FileControl); !ok {
		return fmt.Errorf("%w: it has connections of type %T", errDriver, conn)
	}
	return nil
}

type txKey struct{}

// Tx returns the transaction of the work whose context is ctx. Its changes are committed
// with the receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction].
//
// Do slow work before the first statement: from then on, no other work writes. Commit and Rollback
// of tx return an error and do nothing, and so do COMMIT and ROLLBACK as statements. To roll
// back, return an error, or send an answer that is not kept. A deferred Rollback does no harm.
// Savepoints work. Rows do not know the lengths of their columns.
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// out makes the work's *sql.Tx, whose one connection is its session.
const out = rowstore.Lender("sqlitestore")

func (w *session) readyFor(ctx context.Context, text string) error {
	if ends(text) {
		return out.Refusal()
	}
	return w.ready(ctx)
}

// token is a quoted text, a comment, a semicolon or a word.
var token = regexp.MustCompile("(?s)'[^']*(?:'|$)|\"[^\"]*(?:\"|$)|`[^`]*(?:`|$)|\\[[^\\]]*(?:\\]|$)|--[^\n]*|/\\*.*?(?:\\*/|$)|;|[\\pL\\d_$]+")

// ends reports whether a text of SQL contains a statement that would end the transaction: COMMIT,
// END, or ROLLBACK without TO.
func ends(text string) bool {
	switch rowstore.FirstWord(text) {
	case "", "COMMIT", "END", "ROLLBACK":
	default:
		if !rowstore.Several(text) {
			return false // without a look at the rest, which may have megabytes
		}
	}
	return slices.ContainsFunc(rowstore.Statements(token, text), func(words []string) bool {
		return len(words) > 0 && (words[0] == "COMMIT" || words[0] == "END" || words[0] == "ROLLBACK" && !slices.Contains(words, "TO"))
	})
}
