package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock"
)

// work begins the transactions of work.
type work interface {
	begin(ctx context.Context) (transaction, error)
}

// transaction is what package database/sql and pgx have in common of one.
type transaction interface {
	// settle runs a statement that returns at most one row.
	settle(ctx context.Context, statement string, args []any, into ...any) (found bool, err error)
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
	carried(ctx context.Context) context.Context
}

// Begin is part of [lock.Transactor]. The transaction has the isolation that the pool, or
// the database, has by default. The work gets it by [Tx] or [SQLTx].
func (s *Store) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	s.begins.enter()
	tx, err := s.work.begin(ctx)
	s.begins.leave(err == nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: pgstore: the work's transaction was not begun: %w", lock.ErrNotApplied, explain(err))
	}
	return tx.carried(ctx), &settling{store: s, tx: tx, key: key, token: token}, nil
}

// settling is a transaction of work.
type settling struct {
	store      *Store
	tx         transaction
	key, token string

	xid  string // of the transaction; "" before its COMMIT was sent
	mark string // by which its receipt replaces the entry
}

// patience is for how long the server waits for the COMMIT that follows the receipt. It is
// longer than the round trip of any COMMIT that is not lost, and as long as the caller of
// a lost one waits for the truth where the store may end no session.
const patience = 500 * time.Millisecond

var errAborted = errors.New("pgstore: the work's transaction was rolled back, since a statement in it has failed: " +
	"have the work return an error, or an answer that is not kept, when a statement fails, or run what may fail in a savepoint (tx.Begin)")

// Settle is part of [lock.Transaction]. COMMIT is sent when the receipt is known to be
// written: until then there is nothing that could be committed late.
func (t *settling) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	found, err := t.tx.settle(ctx, t.store.statements.settleInside,
		[]any{[]byte(t.key), []byte(t.token), nonNil(receipt), micros(keep), strconv.FormatInt(patience.Milliseconds(), 10)},
		&t.xid, &t.mark, new(string))
	if errors.Is(err, sql.ErrTxDone) { // the work has ended it itself, and what it has done is not to be done again
		return t.store.Settle(ctx, t.key, t.token, receipt, keep)
	}
	if err != nil || !found {
		t.xid = ""
		_ = t.tx.rollback(ctx)
		return false, notCommitted(err)
	}
	err = t.tx.commit(ctx)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, pgx.ErrTxCommitRollback), refused(err):
		return false, notCommitted(err)
	default:
		return false, fmt.Errorf("pgstore: COMMIT was not answered: %w", err)
	}
}

// notCommitted is the error of a Settle that was rolled back because of err.
func notCommitted(err error) error {
	switch {
	case err == nil:
		return nil
	case aborted(err), errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("%w: %w", lock.ErrNotApplied, errAborted)
	case conflicted(err):
		return fmt.Errorf("%w: %w: pgstore: the work's transaction was rolled back for the sake of another one: %w", lock.ErrNotApplied, lock.ErrUnavailable, err)
	case refused(err):
		return fmt.Errorf("%w: pgstore: the work's transaction was rolled back: %w", lock.ErrNotApplied, explain(err))
	default:
		return fmt.Errorf("%w: %w: pgstore: the receipt was not answered, and so not committed: %w", lock.ErrNotApplied, lock.ErrUnavailable, err)
	}
}

// Outcome is part of [lock.Transaction]. The transaction is committed if the entry has its
// receipt. While it is in progress, its session is ended: a COMMIT that arrives later finds
// none. An entry that is no longer there, or is another claim's, has not been settled: the
// server has lost both in a crash, the lease was over, or an operator has freed the key.
func (t *settling) Outcome(ctx context.Context) (committed bool, err error) {
	if t.xid == "" {
		return false, nil
	}
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		var settled bool
		var status *string // nil if the transaction has left no trace in the entry
		if err := t.ask(ctx, t.store.statements.outcome, []any{[]byte(t.key), []byte(t.token), t.xid, t.mark}, &settled, &status); err != nil {
			return false, err
		}
		switch {
		case settled:
			return true, nil
		case status == nil, *status == "aborted":
			return false, nil
		}
		var ended bool
		_ = t.ask(ctx, t.store.statements.end, []any{t.xid}, &ended) // without the right to, the server does it after patience
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("pgstore: the transaction is %q still: %w", *status, context.Cause(ctx))
		case <-again.C:
		}
	}
}

// ask reads one row over the store's own connections. No row is no error.
func (t *settling) ask(ctx context.Context, statement string, args []any, into ...any) error {
	rows, err := t.store.query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(into...)
	}
	rows.Close()
	if err == nil {
		err = storeError(rows.Err())
	}
	return err
}

// Rollback is part of [lock.Transaction].
func (t *settling) Rollback(ctx context.Context) error {
	err := t.tx.rollback(ctx)
	if err == nil || errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return fmt.Errorf("pgstore: the work's transaction is left to the server to roll back: %w", err)
}

// beginTime bounds a BEGIN once there is a connection for it: the wait for that is as long
// as the caller's.
const beginTime = 2 * time.Second

// poolWork begins transactions of a pool.
type poolWork struct{ pool *pgxpool.Pool }

func (w poolWork) begin(ctx context.Context) (transaction, error) {
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		giveBack(conn)
		return nil, err
	}
	return &poolTx{tx, conn}, nil
}

type poolTx struct {
	pgx.Tx

	conn *pgxpool.Conn // nil when the transaction is over
}

func (t *poolTx) settle(ctx context.Context, statement string, args []any, into ...any) (found bool, err error) {
	err = t.QueryRow(ctx, statement, args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (t *poolTx) commit(ctx context.Context) error   { return t.end(ctx, t.Commit) }
func (t *poolTx) rollback(ctx context.Context) error { return t.end(ctx, t.Rollback) }

func (t *poolTx) end(ctx context.Context, how func(context.Context) error) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	err := how(ctx)
	giveBack(t.conn)
	t.conn = nil
	return err
}
