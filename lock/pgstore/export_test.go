package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// WithTx returns a context with tx for Tx, for broken stores of tests.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}
