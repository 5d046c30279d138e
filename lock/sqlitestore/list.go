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
	return rowstore.List(ctx, s.rows)
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page(ctx, "sqlitestore", cursor, limit, match, s.rows)
}

// rows reads rows of both files. The receipt of a key comes before its claim.
func (s *Store) rows(ctx context.Context, after []byte, limit int, receipts bool) ([]*rowstore.Row, error) {
	all, err := answered(ctx, s, false, func(ctx context.Context, f *files, now int64) (all []*rowstore.Row, err error) {
		for _, file := range []*sql.Conn{f.receipts, f.claims} {
			rows, err := file.QueryContext(ctx, s.statements.page, after, limit, receipts)
			err = rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
				r := &rowstore.Row{At: now}
				all = append(all, r)
				return r.Scan(rows)
			})
			if err != nil {
				return nil, err
			}
		}
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b *rowstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	for limit < len(all) && bytes.Equal(all[limit].Key, all[limit-1].Key) {
		limit++
	}
	return all[:min(limit, len(all))], nil
}
