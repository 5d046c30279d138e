package mysqlstore

import (
	"context"
	"database/sql"
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
			entries, last, full, err := s.entries(ctx, s.statements.list, after, atOnce)
			if err != nil {
				yield(lock.Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			after, more = last, full
		}
	}
}

// Page is part of [lock.Pager]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	after, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("%w: mysqlstore: a cursor that is not of this store", lock.ErrNotApplied)
	}
	entries, last, full, err := s.entries(ctx, s.statements.page, after, max(limit, 1))
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if match == nil || match(e.Key) {
			page = append(page, e)
		}
	}
	if full {
		next = hex.EncodeToString(last)
	}
	return page, next, nil
}

// entries returns the live entries of the first rows after a key, the last key of the rows, and whether
// there may be more.
func (s *Store) entries(ctx context.Context, statement string, after []byte, limit int) (entries []lock.Entry, last []byte, full bool, err error) {
	err = s.with(ctx, rowstore.Later, func(conn *sql.Conn) error {
		entries, last = nil, nil
		rows, err := conn.QueryContext(ctx, text(statement, after, int64(limit)))
		if err != nil {
			return err //nolint:wrapcheck // by with
		}
		defer rows.Close() //nolint:errcheck // Err has its error
		n := 0
		for ; rows.Next(); n++ {
			var r rowstore.Row
			var at int64
			if err := r.Scan(timed{rows, &at}); err != nil {
				return err //nolint:wrapcheck // by with
			}
			if last = r.Key; r.State(at) != lock.Free {
				entries = append(entries, r.Entry(at))
			}
		}
		full = n == limit
		return rows.Err() //nolint:wrapcheck // by with
	})
	return entries, last, full, err
}
