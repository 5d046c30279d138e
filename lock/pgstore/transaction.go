package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Begin is part of [lock.Transactor]. The transaction has the default isolation of the pool, or
// of the database. The work gets it by [Tx] or [SQLTx].
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	statements, err := s.located(ctx)
	if err != nil {
		return nil, nil, err
	}
	waits, cancel := context.WithTimeout(ctx, 2*rowstore.LongestWait) // longer than estimated at the claim
	defer cancel()
	session, err := rowstore.Through(&s.begins, func() (*session, error) { return s.newSession(waits) })
	if err != nil {
		return nil, nil, failure.NotBegun(err)
	}
	inside := session.carried(ctx)
	return context.WithValue(inside, insideKey{s}, inside), &workTransaction{store: s, session: session, settle: statements.settle, key: []byte(key), token: []byte(token)}, nil
}

// workTransaction is the [lock.Transaction] of work.
type workTransaction struct {
	store      *Store
	session    *session
	settle     string // leaves the receipt
	key, token []byte
	result     commitResult // unanswered until COMMIT was sent and answered
	sent       time.Time    // when COMMIT was sent

	leave       func(ctx context.Context) (bool, error) // leaves the receipt of work that has ended by itself; else nil
	unexplained bool                                    // it is not known how it has ended, and no caller was answered so
}

// Settle is part of [lock.Transaction]. The receipt and COMMIT are one round trip.
func (t *workTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	t.store.keep.Store(rowstore.Micros(keep))
	s := t.session
	inUse := s.take(ctx)
	defer s.leave()
	switch conn := s.conn.PgConn(); {
	case !inUse && s.ended():
		return t.leaveApart(ctx, receipt, keep)
	case s.late:
		return false, failure.Transient(errBusy)
	case s.cut:
		return false, failure.Transient(errSessionEnded)
	case inUse, s.leftOpen.Load(), conn.IsBusy():
		return false, failure.Permanent(errBusy)
	case conn.IsClosed():
		return false, failure.Transient(errSessionEnded)
	case conn.TxStatus() == 'E':
		_ = s.rollback(ctx)
		return false, failure.Permanent(errAborted)
	}
	t.sent = time.Now()
	how, err := s.settleAndCommit(ctx, t.store.planned(t.settle), t.key, t.token, nonNil(receipt), bigint(rowstore.Micros(keep)), []byte(markOf(s.conn)))
	switch t.result = how; how {
	case committed:
		return true, nil
	case notFound:
		_ = s.rollback(ctx)
		switch found, err := t.TakeClaim(ctx); {
		case err != nil:
			return false, failure.Transient(err)
		case found == rowstore.Taken:
			return false, failure.Permanent(errUnmarked)
		}
		return false, nil
	case refusedThere:
		_ = s.rollback(ctx)
		return false, notCommitted(err)
	case unanswered:
	}
	return false, err
}

// leaveApart leaves the receipt of work that has committed by itself, an empty one if it is not known
// whether it has.
func (t *workTransaction) leaveApart(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	kept, err := t.session.kept(ctx)
	t.session.hangUp() // its next user must not get the mark
	if t.unexplained = err != nil; t.unexplained {
		receipt = nil
	} else if !kept {
		return false, failure.Permanent(errEnded)
	}
	t.leave = func(ctx context.Context) (bool, error) {
		return t.store.Settle(ctx, string(t.key), lock.Claim{Token: string(t.token)}, receipt, keep)
	}
	if t.unexplained {
		return false, fmt.Errorf("%w: %w", errUnexplained, failure.Classed(err))
	}
	return t.Outcome(ctx)
}

var (
	errAborted = errors.New("a statement in it has failed: have the work return an error, or an answer that is not kept, when a statement fails, " +
		"or run what may fail in a savepoint (tx.Begin)")
	errEnded = errors.New("the work has ended it itself, by a statement such as ROLLBACK, or COMMIT after one that has failed: " +
		"leave that to the guard, and return an error, or an answer that is not kept, to have it rolled back")
	errUnmarked = errors.New("the work has ended it itself and begun another, as ROLLBACK AND CHAIN does, or has reset all settings (RESET ALL): " +
		"leave the end to the guard, and reset settings by their names")
	errUnexplained  = errors.New("pgstore: the work has ended its transaction itself, and it is not known whether it was committed: leave its end to the guard")
	errBusy         = errors.New("the work has left rows open, or uses it still: close all rows, and wait for its goroutines, before it returns")
	errReadOnly     = errors.New("it is read only, and the receipt is to be written in it")
	errRole         = errors.New("its role may not write the receipt: have the work RESET ROLE, or grant the role what the package's documentation names")
	errSessionEnded = errors.New("its session has ended, by the server, or with the context of a statement that was in progress")
)

// notCommitted converts the error of a Settle that the server has refused.
func notCommitted(err error) error {
	switch {
	case hasCode(err, "25006"):
		return failure.Permanent(errors.Join(errReadOnly, err))
	case hasCode(err, "42501"):
		return failure.Permanent(errors.Join(errRole, err))
	case passes(err):
		return failure.Transient(err)
	default:
		return failure.Permanent(err)
	}
}

// Outcome is part of [lock.Transaction]. If the entry is gone, or belongs to another claim, it was not
// settled: the server has lost claim and COMMIT in a crash, the lease was over, or an operator has freed
// the key.
func (t *workTransaction) Outcome(ctx context.Context) (ok bool, err error) {
	switch {
	case t.leave != nil:
		if ok, err = t.leave(ctx); err != nil { // whether the receipt was applied does not show the outcome
			return false, fmt.Errorf("pgstore: leaving the receipt of work that has ended by itself: %s", err.Error())
		}
		if t.unexplained {
			t.unexplained = false // the caller is not answered by the receipt
			return false, fmt.Errorf("%w: %w: %w", lock.ErrNotApplied, lock.ErrDenied, errUnexplained)
		}
		return ok, nil
	case t.sent.IsZero():
		return false, t.Rollback(ctx)
	case t.result != unanswered:
		return t.result == committed, nil
	}
	if ok, err = rowstore.Committed(ctx, "pgstore", t); err == nil {
		t.result = notFound
	}
	if ok {
		t.result = committed
	}
	return ok, err
}

// TakeClaim is part of [rowstore.Question].
func (t *workTransaction) TakeClaim(ctx context.Context) (rowstore.Found, error) {
	found := rowstore.Gone
	err := t.store.each(ctx, rowstore.First, t.store.statements.takeAway, func(rows pgx.Rows) error {
		var settled bool
		err := rows.Scan(&settled, nil)
		if found = rowstore.Taken; settled {
			found = rowstore.Settled
		}
		return err
	}, t.key, t.token, "100ms") // bounds the wait for the lock of the row
	if hasCode(err, "55P03") {
		return rowstore.Locked, nil
	}
	return found, err
}

// EndIdle is part of [rowstore.Question]. Behind PgBouncer, the connection does not know the number of the
// server's process. There PgBouncer itself ends the session, because its client is gone.
func (t *workTransaction) EndIdle(ctx context.Context) {
	t.store.endIdle(ctx, t.session.conn.PgConn().PID(), t.sent)
}

// endIdle ends a session that has sent COMMIT. Its number may belong to another session now, which has
// begun later.
func (s *Store) endIdle(ctx context.Context, pid uint32, sent time.Time) {
	var began time.Time
	var age int64
	err := s.each(ctx, rowstore.First, s.statements.idle, func(rows pgx.Rows) error { return rows.Scan(&began, &age) }, int64(pid))
	if err == nil && age > time.Since(sent).Microseconds() {
		_, _ = s.flag(ctx, rowstore.First, s.statements.endIdle, int64(pid), began)
	}
}

func (t *workTransaction) Rollback(ctx context.Context) error {
	if s := t.session; !s.take(ctx) && s.giveBack != nil && s.ended() {
		s.hangUp() // its next user must not get the mark, which may be set
	}
	if err := t.session.rollback(ctx); err != nil {
		return fmt.Errorf("pgstore: the work's transaction is left to the server to roll back: %w", err)
	}
	return nil
}
