package pgstore

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// List is part of [lock.Inspector]. It reads in steps, so that no statement is long.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return rowstore.List(ctx, s.rows)
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page(ctx, "pgstore", cursor, limit, match, s.rows)
}

func (s *Store) rows(ctx context.Context, after []byte, limit int, receipts bool) (all []*rowstore.Row, err error) {
	err = s.each(ctx, rowstore.Later, s.statements.page, func(rows pgx.Rows) error {
		var key blob
		r, err := scanRow(rows, &key)
		if err == nil {
			r.Key = key
			all = append(all, r)
		}
		return err
	}, after, int64(limit), receipts)
	return all, err
}
