package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// atOnce is how many rows List reads at once.
const atOnce = 500

// List is part of [lock.Inspector]. It reads in steps.
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for after, more := []byte{}, true; more; {
			var entries []lock.Entry
			var err error
			if entries, after, more, err = s.entries(ctx, after, atOnce, true); err != nil {
				yield(lock.Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Page is part of [lock.Pager]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	after, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%w: sqlitestore: a cursor that is not of this store", lock.ErrNotApplied)
	}
	entries, last, more, err := s.entries(ctx, after, max(limit, 1), false)
	if err != nil {
		return nil, "", err
	}
	if more {
		next = hex.EncodeToString(last)
	}
	return slices.DeleteFunc(entries, func(e lock.Entry) bool { return match != nil && !match(e.Key) }), next, nil
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
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err has its error
	for rows.Next() {
		r := new(rowstore.Row)
		if err := r.Scan(rows); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
