package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Amend is part of [lock.Amender]. In work that runs in a transaction of this store, it is a
// statement of that transaction: the receipt is replaced when the work is committed.
func (s *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	args := []any{[]byte(key), []byte(token), nonNil(from), nonNil(to)}
	if ctx.Value(insideKey{s}) == nil {
		return s.flag(ctx, rowstore.First, s.statements.amend, args...)
	}
	ok, err = s.amendInside(ctx, args)
	if err != nil {
		return false, fmt.Errorf("pgstore: the receipt was not replaced in the work's transaction: %w", failure.Of(err))
	}
	return ok, nil
}

// insideKey is the context key for work that runs in a transaction of the store.
type insideKey struct{ store *Store }

// amendInside replaces a receipt in the transaction of the work.
func (s *Store) amendInside(ctx context.Context, args []any) (ok bool, err error) {
	statements, err := s.located(ctx)
	if err != nil {
		return false, err
	}
	if tx, is := Tx(ctx); is {
		err = tx.QueryRow(ctx, statements.amend, args...).Scan(nil)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	}
	tx, is := SQLTx(ctx)
	if !is {
		return false, fmt.Errorf("%w: the context has no transaction", lock.ErrNotApplied)
	}
	result, err := tx.ExecContext(ctx, statements.amend, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
