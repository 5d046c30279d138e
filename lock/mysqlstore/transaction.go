package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/outcome"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Begin is part of [lock.Transactor]. It takes a connection of the database for the work. The work
// gets the transaction by [Tx].
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	waits, cancel := context.WithTimeout(ctx, 2*rowstore.LongestWait) // longer than estimated at the claim
	defer cancel()
	work, err := rowstore.Through(&s.begins, func() (*session, error) { return s.newSession(waits) })
	if err != nil {
		return nil, nil, fmt.Errorf("%w: mysqlstore: the work's transaction was not begun: %w", lock.ErrNotApplied, explain(err))
	}
	return context.WithValue(ctx, txKey{}, work.tx), &workTransaction{store: s, work: work, key: key, token: token}, nil
}

// workTransaction is a transaction of work.
type workTransaction struct {
	store      *Store
	work       *session
	key, token string

	sent      bool // COMMIT was sent
	answered  bool // COMMIT was answered, or its outcome was found out
	committed bool
}

// Settle is part of [lock.Transaction].
func (t *workTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	w := t.work
	w.take(ctx)
	defer func() { w.end(ctx, t.committed) }()
	if err := w.ready(ctx, plain); err != nil {
		return t.ended(ctx, err, receipt, keep)
	}
	_, err = w.exec(ctx, dropPoint)
	if number(err) == errNoSavepoint {
		w.broken = true // another transaction may be open on its connection
		return t.ended(ctx, permanent(errEnded), receipt, keep)
	}
	var changed int64
	if err == nil && w.mark != 0 {
		_, err = w.exec(ctx, text(t.store.statements.dropFence, w.mark))
	}
	if err == nil {
		changed, err = changes(w.exec(ctx, text(t.store.statements.settleInside, t.key, t.token, receipt, rowstore.Micros(keep))))
	}
	switch {
	case err != nil:
		return false, notCommitted(err)
	case changed == 0:
		return false, nil
	}
	return t.commit(ctx)
}

// commit sends COMMIT. The driver closes the connection when ctx ends, which cancels no COMMIT.
func (t *workTransaction) commit(ctx context.Context) (bool, error) {
	t.sent = true
	_, err := t.work.exec(ctx, commit)
	switch {
	case err == nil:
		t.committed, t.answered = true, true
		return true, nil
	case rolledBack(err):
		t.answered = true
		return false, notCommitted(err)
	default:
		return false, fmt.Errorf("mysqlstore: COMMIT was not answered: %w", classified(err))
	}
}

// ended returns the result of a transaction that ended before its receipt was written. If the work
// itself has committed it, ended settles the receipt now.
func (t *workTransaction) ended(ctx context.Context, why error, receipt []byte, keep time.Duration) (ok bool, err error) {
	kept, err := t.work.committedByWork(ctx)
	switch {
	case err != nil:
		return false, transient(err)
	case kept:
		return t.store.Settle(ctx, t.key, lock.Claim{Token: t.token}, receipt, keep)
	default:
		return false, why
	}
}

var (
	errEnded = errors.New("it has ended before its work, by a statement such as CALL of a procedure that commits or rolls back: " +
		"leave that to the guard, and return an error, or an answer that is not kept, to have it rolled back")
	errUndone       = errors.New("the server has rolled it back, after a deadlock or another error of a statement")
	errSessionEnded = errors.New("its session has ended, by the server, or with the context of a statement that was in progress")
	errReadOnly     = errors.New("it is read only, and the receipt is to be written in it")
)

// permanent and transient return the errors of a transaction that was rolled back.
var permanent, transient = rowstore.RolledBack("mysqlstore")

// notCommitted converts the error of a Settle whose COMMIT was not sent or was refused.
func notCommitted(err error) error {
	switch {
	case slices.Contains(readOnly, number(err)):
		return permanent(errors.Join(errReadOnly, err))
	case passes(err):
		return transient(classified(err))
	default:
		return permanent(explain(err))
	}
}

// Outcome is part of [lock.Transaction]. It asks by a write. When the write is committed, the
// answer is final: the server is not a replica, and if COMMITs wait for a replica, the replica has
// both commits.
func (t *workTransaction) Outcome(ctx context.Context) (ok bool, err error) {
	switch {
	case !t.sent:
		return false, t.Rollback(ctx)
	case t.answered:
		return t.committed, nil
	}
	if ok, err = outcome.Decide(ctx, t); err != nil {
		// The error is not wrapped: whether this question was applied does not show the outcome of
		// the COMMIT.
		return false, fmt.Errorf("mysqlstore: asking for the outcome of COMMIT: %s", err.Error())
	}
	t.committed, t.answered = ok, true
	return ok, nil
}

// TakeClaim is part of [outcome.Row]. It writes in any case, because a replica refuses a write.
func (t *workTransaction) TakeClaim(ctx context.Context) (found outcome.Found, err error) {
	s := t.store
	err = s.withOwn(ctx, rowstore.First, func(conn *sql.Conn) error {
		return inTx(ctx, conn, func() error {
			_, err := s.draw(ctx, conn)
			if err == nil {
				found, err = t.takeAway(ctx, conn)
			}
			return err
		})
	})
	if n := number(err); n == errLockWaitTimeout || n == errLockNowait {
		return outcome.Locked, nil
	}
	return found, err
}

// takeAway takes the claim from the transaction of the work, if the claim exists.
func (t *workTransaction) takeAway(ctx context.Context, conn *sql.Conn) (outcome.Found, error) {
	var token []byte
	var settled bool
	err := conn.QueryRowContext(ctx, text(t.store.statements.lockRow, t.key)).Scan(&token, &settled)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return outcome.Gone, nil
	case err != nil:
		return outcome.Gone, err //nolint:wrapcheck // by with
	case string(token) != t.token:
		return outcome.Gone, nil
	case settled:
		return outcome.Settled, nil
	}
	_, err = conn.ExecContext(ctx, text(t.store.statements.takeAway, t.key))
	return outcome.Taken, err //nolint:wrapcheck // by with
}

// EndIdle is part of [outcome.Row]. Ending an idle session is safe: a session that waits for its
// client in the middle of a transaction is not executing a COMMIT.
func (t *workTransaction) EndIdle(ctx context.Context) {
	_ = t.store.withOwn(ctx, rowstore.First, func(conn *sql.Conn) error {
		var idle int
		if err := conn.QueryRowContext(ctx, text(t.store.statements.idle, t.work.id)).Scan(&idle); err != nil {
			return err //nolint:wrapcheck // it is not looked at
		}
		_, err := conn.ExecContext(ctx, text("KILL CONNECTION $1", t.work.id))
		return err //nolint:wrapcheck // it is not looked at
	})
}

// Rollback is part of [lock.Transaction].
func (t *workTransaction) Rollback(ctx context.Context) error {
	if t.work.user != nil {
		t.work.take(ctx)
	}
	t.work.end(ctx, false)
	return nil
}
