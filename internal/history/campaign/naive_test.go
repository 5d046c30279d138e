//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock"
)

type transactor interface {
	lock.Store
	lock.Transactor
}

// handle is a transaction of the work.
type handle struct {
	exec             func(ctx context.Context, statement string, args ...any) (rows int64, err error)
	commit, rollback func(ctx context.Context) error
}

func handleOfPgx(tx pgx.Tx) handle {
	return handle{func(ctx context.Context, statement string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, statement, args...)
		return tag.RowsAffected(), err
	}, tx.Commit, tx.Rollback}
}

func handleOfSQL(tx *sql.Tx) handle {
	return handle{
		func(ctx context.Context, statement string, args ...any) (int64, error) {
			return changed(tx.ExecContext(ctx, statement, args...))
		},
		func(context.Context) error { return tx.Commit() }, func(context.Context) error { return tx.Rollback() },
	}
}

func changed(done sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

// neverAsks is a twin that does not ask for the outcome of a commit, and does not hear it when it
// frees the key: the store answers there that the claim is gone, which makes up for the missing question.
type neverAsks struct{ transactor }

func (s neverAsks) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.transactor.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, once.NeverAsks{Transaction: tx}, nil
}

func (s neverAsks) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	_, err = s.transactor.Release(ctx, key, c)
	return true, err
}

// naive is a twin that begins transactions, and settles with its own function.
type naive struct {
	transactor

	begin  func(ctx context.Context) (handle, error)
	settle func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error)
}

type naiveKey struct{}

func (s naive) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	h, err := s.begin(ctx)
	if err != nil {
		return nil, nil, errors.Join(lock.ErrNotApplied, err)
	}
	return context.WithValue(ctx, naiveKey{}, h), &naiveTx{h, s, key, token}, nil
}

type naiveTx struct {
	handle

	s          naive
	key, token string
}

func (t *naiveTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := t.s.settle(ctx, t, receipt, keep)
	if err != nil {
		_ = t.rollback(ctx) // which gives the connection back
	}
	return ok, err
}

func (t *naiveTx) Outcome(ctx context.Context) (bool, error) {
	e, err := t.s.Get(ctx, t.key)
	return e.State == lock.Settled && e.Token == t.token, err
}

func (t *naiveTx) Rollback(ctx context.Context) error { return t.rollback(ctx) }

// settlesApart commits before it leaves the receipt.
func settlesApart(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
	if err := t.commit(ctx); err != nil {
		return false, err
	}
	return t.s.Settle(ctx, t.key, lock.Claim{Token: t.token}, receipt, keep)
}

// leaves leaves the receipt by a statement, and commits. rows is the number of rows at least that the
// statement has to change.
func leaves(rows int64, leave func(t *naiveTx, receipt []byte, keep time.Duration) (statement string, args []any)) func(context.Context, *naiveTx, []byte, time.Duration) (bool, error) {
	return func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
		statement, args := leave(t, receipt, keep)
		if n, err := t.exec(ctx, statement, args...); err != nil || n < rows {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		err := t.commit(ctx)
		return err == nil, err
	}
}

// asks is a twin that asks for the outcome of a commit with its own function.
type asks struct {
	transactor

	outcome func(ctx context.Context, key, token string) (committed bool, err error)
}

func (s asks) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.transactor.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, asksTx{tx, s, key, token}, nil
}

type asksTx struct {
	lock.Transaction

	s          asks
	key, token string
}

func (t asksTx) Outcome(ctx context.Context) (committed bool, err error) {
	return t.s.outcome(ctx, t.key, t.token)
}

// looks is a twin that answers by a receipt as soon as it can be read.
type looks struct {
	transactor

	db    *sql.DB
	query string // for the fingerprint and the receipt of a key
}

func (s looks) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e := lock.Entry{State: lock.Settled, Left: time.Hour}
	if err := s.db.QueryRowContext(ctx, s.query, []byte(key)).Scan(&e.Fingerprint, &e.Receipt); err == nil {
		return e, nil
	}
	return s.transactor.Claim(ctx, key, c)
}
