package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Sweep removes up to limit ended rows, the oldest first, and returns how many it has removed. It
// skips rows that another process is removing. Claims sweep by themselves, so only a program that
// makes no claims needs to call it.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	return s.sweep(ctx, limit, 0)
}

func (s *Store) sweep(ctx context.Context, limit int, from int64) (removed int, err error) {
	// The statement is planned each time: a plan from the time when the table was empty would
	// read the whole table.
	var upTo int64
	err = s.each(ctx, rowstore.Later, s.statements.sweep, func(rows pgx.Rows) error {
		return rows.Scan(&removed, &upTo, nil)
	}, pgx.QueryExecModeExec, int64(limit), from)
	if err == nil {
		s.sweeps.UpTo(upTo)
	}
	return removed, err
}
