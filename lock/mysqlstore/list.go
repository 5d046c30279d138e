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
	return rowstore.List(s.reader(ctx, s.statements.list))
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page("mysqlstore", cursor, limit, match, s.reader(ctx, s.statements.page))
}

func (s *Store) reader(ctx context.Context, statement string) rowstore.Read {
	return func(after []byte, limit int) (live []lock.Entry, last []byte, more bool, err error) {
		return s.entries(ctx, statement, after, limit)
	}
}

// entries returns the live entries of the first rows after a key, the last key of the rows, and
// whether there may be more.
func (s *Store) entries(ctx context.Context, statement string, after []byte, limit int) (entries []lock.Entry, last []byte, full bool, err error) {
	err = s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		entries, last = nil, nil
		n := 0
		rows, err := conn.QueryContext(ctx, text(statement, after, int64(limit)))
		err = rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
			var r rowstore.Row
			var at int64
			err := r.Scan(followed{rows, []any{&at}})
			if last = r.Key; err == nil && r.State(at) != lock.Free {
				entries = append(entries, r.Entry(at))
			}
			n++
			return err //nolint:wrapcheck // by with
		})
		full = n == limit
		return err //nolint:wrapcheck // by with
	})
	return entries, last, full, err
}
