package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Begin is part of [lock.Transactor]. It takes a connection of the database for the work. The work
// gets the transaction by [Tx].
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	waits, cancel := context.WithTimeout(ctx, 2*rowstore.LongestWait) // longer than estimated at the claim
	defer cancel()
	work, err := rowstore.Through(&s.begins, func() (*session, error) { return s.newSession(waits) })
	if err != nil {
		return nil, nil, failure.NotBegun(err)
	}
	return context.WithValue(ctx, txKey{}, work.Tx), &workTransaction{store: s, work: work, key: key, token: token}, nil
}

// workTransaction is the [lock.Transaction] of work.
type workTransaction struct {
	store      *Store
	work       *session
	key, token string

	asked     time.Time // when the last statement before COMMIT was sent
	sent      time.Time // when COMMIT was sent
	answered  bool      // COMMIT was answered, or its outcome was found out
	committed bool

	keep        time.Duration // of the receipt
	unexplained bool          // the transaction has ended, and it is not known how
}

func (t *workTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	w := t.work
	t.keep = keep
	w.Take(ctx)
	defer func() { w.end(ctx, t.committed) }()
	if err = w.ready(ctx, plain); err != nil {
		return t.ended(ctx, err, receipt, keep)
	}
	before, changed := []string{dropPoint}, int64(0)
	if w.mark != 0 { // apart: the server adds up the rows of statements that it gets together
		_, err = w.together(ctx, dropPoint, text(t.store.statements.dropFence, w.mark))
		before = nil
	}
	if err == nil {
		changed, err = t.leave(ctx, receipt, keep, before...)
	}
	if number(err) == errNoSavepoint {
		if t.unexplained = w.mark == 0; t.unexplained {
			return false, errUnexplained
		}
		return t.ended(ctx, failure.Permanent(errEnded), receipt, keep)
	}
	if errors.Is(failure.Of(err), lock.ErrFull) { // the effect is worth more than its answer
		if number(err) != 0 { // the server has executed them
			before = nil
		}
		changed, err = t.leave(ctx, nil, keep, before...)
	}
	switch {
	case err != nil:
		return false, notCommitted(err)
	case changed == 0:
		return false, nil
	}
	return t.commit(ctx)
}

// leave executes the statements before, which change no row, and writes the receipt. It returns how
// many rows that has changed: 1, or 0.
func (t *workTransaction) leave(ctx context.Context, receipt []byte, keep time.Duration, before ...string) (changed int64, err error) {
	err = t.store.withServer(ctx, t.work.User, func(is *server) error {
		statement := is.settleInside(text(t.store.statements.settleInside, t.key, t.token, receipt, rowstore.Micros(keep)))
		if err := is.fits(statement); err != nil {
			return err
		}
		t.asked = time.Now()
		changed, err = changes(t.work.together(ctx, append(before, statement)...))
		return err
	})
	return changed, err
}

// commit sends COMMIT. The driver closes the connection when ctx ends, which cancels no COMMIT.
func (t *workTransaction) commit(ctx context.Context) (bool, error) {
	t.sent = time.Now()
	_, err := t.work.exec(ctx, commit)
	switch {
	case err == nil:
		t.committed, t.answered = true, true
		return true, nil
	case rolledBack(err):
		t.answered = true
		return false, notCommitted(err)
	default:
		return false, fmt.Errorf("mysqlstore: COMMIT was not answered: %w", failure.Classed(err))
	}
}

// ended returns the result of a transaction that ended before its receipt was written. If the work
// itself has committed it, ended settles the receipt now. Without an answer, its outcome is unknown.
func (t *workTransaction) ended(ctx context.Context, why error, receipt []byte, keep time.Duration) (ok bool, err error) {
	t.work.end(ctx, false) // unlocks the mark
	if t.work.mark == 0 {
		return false, why
	}
	marks, err := t.store.exec(ctx, rowstore.First, text(t.store.statements.dropFence, t.work.mark))
	if err == nil && marks == 0 {
		return false, why
	}
	if err == nil {
		ok, err = t.store.Settle(ctx, t.key, lock.Claim{Token: t.token}, receipt, keep)
	}
	if t.unexplained = err != nil; t.unexplained {
		return false, fmt.Errorf("%w: %s", errUnexplained, err.Error())
	}
	return ok, nil
}

var (
	errEnded = errors.New("it has ended before its work, by a statement such as CALL of a procedure that commits or rolls back: " +
		"leave that to the guard, and return an error, or an answer that is not kept, to have it rolled back")
	errUnexplained = errors.New("mysqlstore: the work's transaction was ended by a statement of the work, " +
		"and it is not known whether it was committed: leave its end to the guard")
	errUndone       = errors.New("the server has rolled it back, after a deadlock or another error of a statement")
	errSessionEnded = errors.New("its session has ended, by the server, or with the context of a statement that was in progress")
)

// notCommitted converts the error of a Settle whose COMMIT was not sent or was refused. If the server
// is no longer the primary, the work may succeed on another one.
func notCommitted(err error) error {
	if isDemoted(err) || passes(err) {
		return failure.Transient(failure.Classed(err))
	}
	return failure.Permanent(failure.Explain(err))
}

func (t *workTransaction) Outcome(ctx context.Context) (ok bool, err error) {
	switch {
	case t.unexplained:
		return t.close(ctx)
	case t.sent.IsZero():
		return false, t.Rollback(ctx)
	case t.answered:
		return t.committed, nil
	}
	ok, err = rowstore.Committed(ctx, "mysqlstore", t)
	t.committed, t.answered = ok, err == nil
	return ok, err
}

// close leaves an empty receipt for a transaction whose outcome nothing shows, so that its work never
// runs again, and then returns an error once: the caller is not answered by it.
func (t *workTransaction) close(ctx context.Context) (ok bool, err error) {
	if t.answered {
		return true, nil
	}
	if _, err = t.store.Settle(ctx, t.key, lock.Claim{Token: t.token}, nil, t.keep); err != nil {
		return false, fmt.Errorf("mysqlstore: leaving an empty receipt: %s", err.Error())
	}
	t.answered = true
	return false, fmt.Errorf("%w: %w: %w", lock.ErrNotApplied, lock.ErrDenied, errUnexplained)
}

// TakeClaim is part of [rowstore.Question]. It writes in any case, because a replica refuses a write. A
// transaction whose COMMIT was sent has written the row: while the transaction is not over, the row is
// locked. So if the row has the claim and no receipt, the transaction was rolled back.
func (t *workTransaction) TakeClaim(ctx context.Context) (found rowstore.Found, err error) {
	s := t.store
	err = s.withOwn(ctx, rowstore.First, func(conn *sql.Conn) error {
		return inTx(ctx, conn, func() error {
			if _, err := s.draw(ctx, conn); err != nil {
				return err
			}
			var token []byte
			var settled bool
			err := conn.QueryRowContext(ctx, text(s.statements.lockRow, t.key)).Scan(&token, &settled)
			switch {
			case errors.Is(err, sql.ErrNoRows), err == nil && string(token) != t.token:
				found, err = rowstore.Gone, nil
			case err == nil && settled:
				found = rowstore.Settled
			case err == nil:
				found = rowstore.Taken
			}
			return err
		})
	})
	if n := number(err); n == errLockWaitTimeout || n == errLockNowait {
		return rowstore.Locked, nil
	}
	return found, err
}

// EndIdle is part of [rowstore.Question]. Servers count their sessions, so after a restart, or on another
// server, the number may belong to another session, which has not been idle since the COMMIT was sent.
func (t *workTransaction) EndIdle(ctx context.Context) {
	_ = t.store.withOwn(ctx, rowstore.First, func(conn *sql.Conn) error {
		atLeast := time.Since(t.sent)
		var idle, unit float64
		err := conn.QueryRowContext(ctx, text(t.store.statements.idle, t.work.id)).Scan(&idle, &unit)
		since, off := time.Duration(idle*float64(time.Millisecond)), time.Duration(unit*float64(time.Millisecond))
		if err != nil || since+off < atLeast || since-off > time.Since(t.asked) {
			return err
		}
		_, err = conn.ExecContext(ctx, text("KILL CONNECTION $1", t.work.id))
		return err
	})
}

func (t *workTransaction) Rollback(ctx context.Context) error {
	if t.work.User != nil {
		t.work.Take(ctx)
	}
	t.work.end(ctx, false)
	return nil
}
