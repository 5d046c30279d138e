package pgstore

import (
	"context"
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
	return rowstore.Page("pgstore", cursor, limit, match, s.reader(ctx, s.statements.page))
}

func (s *Store) reader(ctx context.Context, statement string) rowstore.Read {
	return func(after []byte, limit int) (live []lock.Entry, last []byte, more bool, err error) {
		rows, err := s.rows(ctx, statement, after, limit)
		for _, r := range rows {
			if last = r.key; r.entry.State != lock.Free {
				live = append(live, r.entry)
			}
		}
		return live, last, len(rows) == limit, err
	}
}

type row struct {
	key   []byte
	entry lock.Entry
}

func (s *Store) rows(ctx context.Context, statement string, after []byte, limit int) (all []row, err error) {
	rows, err := s.queryAt(ctx, rowstore.Later, statement, after, int64(limit))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if r.entry, err = scanEntry(rows, (*blob)(&r.key)); err != nil {
			return nil, err
		}
		r.entry.Key = string(r.key)
		all = append(all, r)
	}
	rows.Close()
	return all, storeError(rows.Err())
}
