package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// WithTx returns a context with tx for Tx, for broken stores of tests.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// EndIdle ends an idle session that has sent COMMIT at a moment.
func (s *Store) EndIdle(ctx context.Context, pid uint32, sent time.Time) { s.endIdle(ctx, pid, sent) }
