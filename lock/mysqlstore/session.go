package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// rawConn is a connection of the driver.
type rawConn interface {
	rowstore.RawConn
	driver.ConnPrepareContext
	driver.NamedValueChecker
	driver.Validator
}

// session is a connection during one transaction of work.
type session struct {
	store *Store
	user  *sql.Conn // of the pool
	conn  rawConn
	id    int64              // of the server's session
	tx    *sql.Tx            // of the work
	cut   context.Context    //nolint:containedctx // ends the calls of the work that are in progress
	stop  context.CancelFunc // ends cut

	begun   bool  // the transaction has begun
	stmtErr error // of a statement, after which the server may have rolled back
	endErr  error // the reason if the transaction has ended before its work, else nil
	mark    int64 // number of a row that the work's transaction has written; 0 if there is none

	broken bool // its connection must not be used again
}

// savepoint is made at the beginning of the transaction, and released before the receipt is
// written. When the transaction has ended, by a commit or a rollback, the server no longer has the
// savepoint, and the release fails. Without it, the store would not notice that a deadlock had
// rolled back the transaction, and that the server commits each later statement at once.
const savepoint = "latch_work"

const (
	begin     = "START TRANSACTION"
	setPoint  = "SAVEPOINT " + savepoint
	dropPoint = "RELEASE SAVEPOINT " + savepoint
	// Whatever completion_type is: no other transaction follows, and the connection stays.
	commit   = "COMMIT AND NO CHAIN NO RELEASE"
	rollback = "ROLLBACK AND NO CHAIN NO RELEASE"
)

func (s *Store) newSession(ctx context.Context) (w *session, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	w = &session{store: s}
	if w.user, err = s.db.Conn(ctx); err != nil {
		return nil, dialError(err)
	}
	err = w.user.Raw(func(conn any) (err error) {
		w.conn, err = rawConnOf(s.db, conn)
		return err
	})
	if err == nil {
		w.id, err = s.sessions.id(ctx, w.user, w.conn)
	}
	if err == nil {
		w.cut, w.stop = context.WithCancel(context.WithoutCancel(ctx))
		w.tx, err = rowstore.Lend(w.cut, s.out(), w.lent())
	}
	if err != nil {
		return nil, errors.Join(err, ignoreDone(w.user.Close()))
	}
	return w, nil
}

// rawConnOf returns an error unless a connection is of go-sql-driver/mysql.
func rawConnOf(db *sql.DB, conn any) (rawConn, error) {
	raw, ok := conn.(rawConn)
	if _, is := db.Driver().(*mysql.MySQLDriver); !is || !ok {
		return nil, unfit("New needs a *sql.DB of github.com/go-sql-driver/mysql, sql.Open(\"mysql\", dsn), and this one has connections of type %T", conn)
	}
	return raw, nil
}

// sessions keeps the server's number of each session.
type sessions struct {
	mu  sync.Mutex
	ids map[driver.Conn]int64
}

// mostSessions bounds the numbers, because a connection does not report its end.
const mostSessions = 1000

func (s *sessions) id(ctx context.Context, user *sql.Conn, conn driver.Conn) (id int64, err error) {
	s.mu.Lock()
	id, ok := s.ids[conn]
	s.mu.Unlock()
	if ok {
		return id, nil
	}
	if err := user.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return 0, err //nolint:wrapcheck // by its caller
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil || len(s.ids) >= mostSessions {
		s.ids = make(map[driver.Conn]int64)
	}
	s.ids[conn] = id
	return id, nil
}

func (w *session) exec(ctx context.Context, statement string) (driver.Result, error) {
	return w.conn.ExecContext(ctx, statement, nil) //nolint:wrapcheck // by its callers
}

// run executes statements until one fails.
func (w *session) run(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := w.exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// ready begins the transaction for the first statement. Later it returns an error if the server has
// ended the transaction: the statement would be committed at once.
func (w *session) ready(ctx context.Context, how kind) error {
	if how == ending {
		return errWouldEnd
	}
	if err := w.settled(ctx); err != nil {
		return err
	}
	if !w.begun {
		if err := w.run(ctx, begin, setPoint); err != nil {
			return transient(classified(err))
		}
		w.begun = true
	}
	if how == unclear {
		return w.writeMark(ctx)
	}
	return nil
}

// settled returns an error if the transaction has ended.
func (w *session) settled(ctx context.Context) error {
	switch {
	case w.endErr != nil:
	case !w.conn.IsValid():
		w.endErr = transient(errSessionEnded)
	case w.stmtErr == nil || !w.begun:
		return nil
	case rollsBack(w.stmtErr):
		w.endErr = transient(fmt.Errorf("%w: %w", errUndone, classified(w.stmtErr)))
	case w.open(ctx):
		w.stmtErr = nil
		return nil
	default:
		w.endErr = transient(fmt.Errorf("%w: %w", errUndone, classified(w.stmtErr)))
		if w.mark != 0 && errors.Is(w.stmtErr, errUnclear) {
			w.endErr = permanent(errEnded)
		}
	}
	return w.endErr
}

// rollsBack reports whether err is an error with which the server rolls back the transaction.
func rollsBack(err error) bool {
	n := number(err)
	return n == errDeadlock || n == errRecordChanged || n == 1206
}

// open reports whether a transaction is open. Without one, the server forgets a savepoint at once.
func (w *session) open(ctx context.Context) bool {
	return w.run(ctx, "SAVEPOINT latch_probe", "RELEASE SAVEPOINT latch_probe") == nil
}

// writeMark prepares for a statement that may end the transaction. It writes a row, which shows
// afterwards whether the transaction was committed. Before the next statement, ready checks that
// the transaction is still open.
func (w *session) writeMark(ctx context.Context) error {
	if w.mark == 0 {
		result, err := w.exec(ctx, w.store.statements.drawFence)
		if err == nil {
			w.mark, err = result.LastInsertId()
		}
		if err != nil {
			return transient(classified(err))
		}
	}
	w.stmtErr = errUnclear
	return nil
}

var errUnclear = errors.New("a statement that may have ended the transaction")

// committedByWork reports whether the work's own statement has committed its transaction.
func (w *session) committedByWork(ctx context.Context) (bool, error) {
	if w.mark == 0 {
		return false, nil
	}
	n, err := w.store.exec(ctx, rowstore.First, text(w.store.statements.dropFence, w.mark))
	return n > 0, err
}

// take takes the transaction from the work. It waits for a call in progress. If ctx ends first,
// take closes the connection.
func (w *session) take(ctx context.Context) {
	defer context.AfterFunc(ctx, w.stop)()
	_ = w.tx.Rollback() // it only refuses later calls, and closes open rows
}

// end gives the connection back. A connection that may be in a transaction is closed, and the
// server rolls back.
func (w *session) end(ctx context.Context, committed bool) {
	if w.user == nil {
		return
	}
	w.stop()
	if w.broken || w.begun && !committed && w.run(ctx, rollback) != nil || !w.conn.IsValid() {
		_ = w.user.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = w.user.Close()
	w.user = nil
}
