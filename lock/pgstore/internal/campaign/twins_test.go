package campaign_test

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// twins are stores that are wrong.
var twins = map[string]func(*pgstore.Store, *pgxpool.Pool) lock.Store{
	"takes silence for no": func(s *pgstore.Store, _ *pgxpool.Pool) lock.Store { return neverAsks{s} },
	"settles apart": func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store {
		return naive{s, pool, func(ctx context.Context, tx pgx.Tx, key, token string, receipt []byte, keep time.Duration) (bool, error) {
			if err := tx.Commit(ctx); err != nil {
				return false, err
			}
			return s.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
		}}
	},
	"trusts its lease": func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store {
		return naive{s, pool, func(ctx context.Context, tx pgx.Tx, key, token string, receipt []byte, keep time.Duration) (bool, error) {
			_, err := tx.Exec(ctx, "UPDATE latch_entries SET receipt = $3, linger = 0, ends_at = clock_timestamp() + $4 * interval '1 microsecond' WHERE key = $1 AND token = $2",
				[]byte(key), []byte(token), receipt, float64(keep.Microseconds()))
			if err != nil {
				return false, errors.Join(lock.ErrNotApplied, err)
			}
			return true, tx.Commit(ctx)
		}}
	},
}

// neverAsks does not ask for the outcome of a commit, and does not hear it when it frees the key:
// the store answers there that the claim is gone, which makes up for the missing question.
type neverAsks struct{ *pgstore.Store }

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
	*pgstore.Store

	pool   *pgxpool.Pool
	settle func(ctx context.Context, tx pgx.Tx, key, token string, receipt []byte, keep time.Duration) (bool, error)
}

type naiveKey struct{}

// txOf returns the transaction of the work.
func txOf(ctx context.Context) (pgx.Tx, bool) {
	if tx, ok := ctx.Value(naiveKey{}).(pgx.Tx); ok {
		return tx, true
	}
	return pgstore.Tx(ctx)
}

func (s naive) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	begin, cancel := context.WithTimeout(ctx, 2*budget)
	defer cancel()
	tx, err := s.pool.Begin(begin)
	if err != nil {
		return nil, nil, errors.Join(lock.ErrNotApplied, err)
	}
	return context.WithValue(ctx, naiveKey{}, tx), &naiveTx{s, tx, key, token}, nil
}

type naiveTx struct {
	s          naive
	tx         pgx.Tx
	key, token string
}

func (t *naiveTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := t.s.settle(ctx, t.tx, t.key, t.token, receipt, keep)
	if err != nil {
		_ = t.tx.Rollback(ctx) // which gives the connection back
	}
	return ok, err
}

func (t *naiveTx) Outcome(ctx context.Context) (bool, error) {
	e, err := t.s.Get(ctx, t.key)
	return e.State == lock.Settled && e.Token == t.token, err
}

func (t *naiveTx) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }
