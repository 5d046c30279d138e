package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"iter"
	"slices"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// List is part of [lock.Inspector]. It reads in steps.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return rowstore.List(s.reader(ctx, true))
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page("sqlitestore", cursor, limit, match, s.reader(ctx, false))
}

func (s *Store) reader(ctx context.Context, receipts bool) rowstore.Read {
	return func(after []byte, limit int) (live []lock.Entry, last []byte, more bool, err error) {
		return s.entries(ctx, after, limit, receipts)
	}
}

// entries returns the live entries of the first rows after a key, the last key of the rows, and
// whether there may be more.
func (s *Store) entries(ctx context.Context, after []byte, limit int, receipts bool) (live []lock.Entry, last []byte, more bool, err error) {
	var rows []*rowstore.Row
	var now int64
	err = s.call(ctx, false, func(ctx context.Context, f *files, at int64) (err error) {
		now = at
		if rows, err = f.page(ctx, f.receipts, s.statements.page, after, limit, receipts); err != nil {
			return err
		}
		claims, err := f.page(ctx, f.claims, s.statements.page, after, limit, receipts)
		rows = append(rows, claims...)
		return err
	})
	if err != nil {
		return nil, nil, false, err
	}
	slices.SortStableFunc(rows, func(a, b *rowstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	if more = len(rows) >= limit; more {
		for limit < len(rows) && bytes.Equal(rows[limit].Key, rows[limit-1].Key) {
			limit++
		}
		rows = rows[:limit]
	}
	for _, r := range rows {
		known := len(live) > 0 && live[len(live)-1].Key == string(r.Key) // by its receipt
		if r.State(now) != lock.Free && !known {
			live = append(live, r.Entry(now))
		}
		last = r.Key
	}
	return live, last, more, nil
}

// page reads rows of one file.
func (f *files) page(ctx context.Context, from *sql.Conn, statement string, after []byte, limit int, receipts bool) (all []*rowstore.Row, err error) {
	rows, err := from.QueryContext(ctx, statement, after, limit, receipts)
	err = rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
		r := new(rowstore.Row)
		all = append(all, r)
		return r.Scan(rows)
	})
	return all, err
}
