package pgstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// atOnce is how many rows List reads in one statement.
const atOnce = 500

// List is part of [lock.Inspector]. It reads in steps, so that no statement is long.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for after, more := []byte{}, true; more; {
			rows, err := s.rows(ctx, s.statements.list, after, atOnce)
			if err != nil {
				yield(lock.Entry{}, err)
				return
			}
			for _, r := range rows {
				after = r.key
				if r.entry.State != lock.Free && !yield(r.entry, nil) {
					return
				}
			}
			more = len(rows) == atOnce
		}
	}
}

// Page is part of [lock.Pager]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	after, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%w: pgstore: a cursor that is not of this store", lock.ErrNotApplied)
	}
	limit = max(limit, 1)
	rows, err := s.rows(ctx, s.statements.page, after, limit)
	if err != nil {
		return nil, "", err
	}
	for _, r := range rows {
		if r.entry.State != lock.Free && (match == nil || match(r.entry.Key)) {
			page = append(page, r.entry)
		}
	}
	if len(rows) == limit {
		next = hex.EncodeToString(rows[limit-1].key)
	}
	return page, next, nil
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
