package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

const leave = "UPDATE latch_entries SET settled = 1, receipt = ?, ends_at = ?, over_at = ends_at WHERE lock_key = ? AND token = ?"

// twins are stores that are wrong.
var twins = map[string]func(*mysqlstore.Store, *sql.DB) transactor{
	"takes silence for no": func(s *mysqlstore.Store, _ *sql.DB) transactor { return neverAsks{s} },
	"settles apart": func(s *mysqlstore.Store, db *sql.DB) transactor {
		return naive{s, db, func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
			if err := t.tx.Commit(); err != nil {
				return false, err
			}
			return s.Settle(ctx, t.key, lock.Claim{Token: t.token}, receipt, keep)
		}}
	},
	"has no savepoint": func(s *mysqlstore.Store, db *sql.DB) transactor {
		return naive{s, db, func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
			done, err := t.tx.ExecContext(ctx, leave, receipt, time.Now().Add(keep).UnixMicro(), []byte(t.key), []byte(t.token))
			if err != nil {
				return false, errors.Join(lock.ErrNotApplied, err)
			}
			if n, err := done.RowsAffected(); n == 0 || err != nil {
				return false, errors.Join(lock.ErrNotApplied, err)
			}
			return true, t.tx.Commit()
		}}
	},
}

// neverAsks does not ask for the outcome of a commit, and does not hear it when it frees the key:
// the store answers there that the claim is gone, which makes up for the missing question.
type neverAsks struct{ *mysqlstore.Store }

func (s neverAsks) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.Store.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, once.NeverAsks{Transaction: tx}, nil
}

func (s neverAsks) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	_, err = s.Store.Release(ctx, key, c)
	return true, err
}

// naive settles with its own function.
type naive struct {
	*mysqlstore.Store

	db     *sql.DB
	settle func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error)
}

type naiveKey struct{}

// txOf returns the transaction of the work.
func txOf(ctx context.Context) (*sql.Tx, bool) {
	if tx, ok := ctx.Value(naiveKey{}).(*sql.Tx); ok {
		return tx, true
	}
	return mysqlstore.Tx(ctx)
}

func (s naive) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	tx, err := s.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, nil, errors.Join(lock.ErrNotApplied, err)
	}
	return context.WithValue(ctx, naiveKey{}, tx), &naiveTx{s, tx, key, token}, nil
}

type naiveTx struct {
	s          naive
	tx         *sql.Tx
	key, token string
}

func (t *naiveTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := t.s.settle(ctx, t, receipt, keep)
	if err != nil {
		_ = t.tx.Rollback() // which gives the connection back
	}
	return ok, err
}

func (t *naiveTx) Outcome(ctx context.Context) (bool, error) {
	e, err := t.s.Get(ctx, t.key)
	return e.State == lock.Settled && e.Token == t.token, err
}

func (t *naiveTx) Rollback(context.Context) error { return t.tx.Rollback() }
