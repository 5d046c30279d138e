package mysqlstore

import (
	"context"
	"database/sql"
	"iter"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// List is part of [lock.Inspector]. It reads in steps, so that no statement is long.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return rowstore.List(ctx, s.rows)
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page(ctx, "mysqlstore", cursor, limit, match, s.rows)
}

func (s *Store) rows(ctx context.Context, after []byte, limit int, receipts bool) (all []*rowstore.Row, err error) {
	statement := s.statements.page
	if receipts {
		statement = s.statements.list
	}
	err = s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		all = nil
		rows, err := conn.QueryContext(ctx, text(statement, after, int64(limit)))
		return rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
			r := new(rowstore.Row)
			all = append(all, r)
			return r.Scan(rows, &r.At)
		})
	})
	return all, err
}
