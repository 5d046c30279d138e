package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Sweep removes up to limit rows that ended ten minutes ago or earlier, the oldest first, and
// returns how many it has removed. It skips rows that another process is removing. Claims
// sweep by themselves, so only a program that makes no claims needs to call it.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	return s.sweep(ctx, limit, 0)
}

func (s *Store) sweep(ctx context.Context, limit int, from int64) (removed int, err error) {
	var upTo int64
	err = s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		return inTx(ctx, conn, func() error {
			removed = 0
			var before int64
			if err := conn.QueryRowContext(ctx, text("SELECT "+now+" - $1", rowstore.SweepAfter.Microseconds())).Scan(&before); err != nil {
				return err
			}
			var keys list
			rows, err := conn.QueryContext(ctx, text(s.statements.ended, from, before, int64(limit)))
			err = rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
				var key []byte
				err := rows.Scan(&key, &upTo)
				keys = append(keys, key)
				return err
			})
			if len(keys) < limit {
				upTo = before
			}
			if err != nil || len(keys) == 0 {
				return err
			}
			n, err := changes(conn.ExecContext(ctx, text(s.statements.remove, keys)))
			removed = int(n)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	s.sweeps.UpTo(upTo)
	return removed, nil
}
