package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// find returns the entry of a key: its live receipt in the database, or else its row in the file
// of claims, whose lease may be over. It returns nil if there is neither. Both exist if a process
// died after the COMMIT of a receipt.
func (f *files) find(ctx context.Context, key []byte, now int64) (*rowstore.Row, error) {
	r, err := read(ctx, f.settled, key, now)
	if err != nil || r.State() != lock.Free {
		return r, err
	}
	return read(ctx, f.get, key, now)
}

// read returns the row of a key in one of the tables, nil if there is none.
func read(ctx context.Context, get *sql.Stmt, key []byte, now int64) (*rowstore.Row, error) {
	r := &rowstore.Row{At: now}
	err := r.Scan(get.QueryRowContext(ctx, key))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // there is none
	}
	return r, err
}

// write writes a row into the file of claims.
func (f *files) write(ctx context.Context, r *rowstore.Row) error {
	_, err := f.put.ExecContext(ctx, r.Values()...)
	return err
}

// remove removes a row from the file of claims.
func (f *files) remove(ctx context.Context, key []byte) error {
	_, err := f.drop.ExecContext(ctx, key)
	return err
}

// Claim is part of [lock.Store]. A claim with a linger is on disk before it is answered.
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if rowstore.Transactional(key, c.Linger) {
		if e, ok := s.committed(ctx, key); ok {
			return e, nil
		}
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return answered(ctx, s, c.Linger > 0, func(ctx context.Context, f *files, now int64) (e lock.Entry, err error) {
		r, err := f.find(ctx, []byte(key), now)
		if err == nil && r.YieldsTo(&c) {
			r = rowstore.RowOf(key, &c, now)
			if c.Fenced {
				err = f.fence.QueryRowContext(ctx, now).Scan(&r.Fence)
			}
			if err == nil {
				err = f.write(ctx, r)
			}
		}
		return r.Entry(), err
	})
}

// change calls change with the entry of token under key. ok is false if there is no such entry.
func (s *Store) change(ctx context.Context, durable bool, key, token string, change func(ctx context.Context, f *files, r *rowstore.Row) (bool, error)) (bool, error) {
	return answered(ctx, s, durable, func(ctx context.Context, f *files, now int64) (bool, error) {
		r, err := f.find(ctx, []byte(key), now)
		if err != nil || !r.Of(token) {
			return false, err
		}
		return change(ctx, f, r)
	})
}

// Renew is part of [lock.Store].
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.change(ctx, c.Linger > 0, key, c.Token, func(ctx context.Context, f *files, r *rowstore.Row) (bool, error) {
		if r.Settled {
			return false, nil
		}
		linger := max(r.Over-r.Ends, rowstore.Micros(c.Linger))
		r.Ends = max(r.Ends, rowstore.Plus(r.At, rowstore.Micros(c.Lease)))
		r.Over = rowstore.Plus(r.Ends, linger)
		return true, f.write(ctx, r)
	})
}

// Settle is part of [lock.Store]. The receipt is in the file of claims.
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	receipt = bytes.Clone(receipt)
	return s.change(ctx, true, key, c.Token, func(ctx context.Context, f *files, r *rowstore.Row) (bool, error) {
		if r.Settled {
			return true, nil
		}
		r.Settle(receipt, keep)
		return true, f.write(ctx, r)
	})
}

// Release is part of [lock.Store].
func (s *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.change(ctx, false, key, c.Token, func(ctx context.Context, f *files, r *rowstore.Row) (bool, error) {
		if r.Settled {
			return false, nil
		}
		return true, f.remove(ctx, r.Key)
	})
}

// Get is part of [lock.Store].
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	return answered(ctx, s, false, func(ctx context.Context, f *files, now int64) (lock.Entry, error) {
		r, err := f.find(ctx, []byte(key), now)
		return r.Entry(), err
	})
}

// Forget is part of [lock.Inspector]. A receipt of a transaction is removed while no work
// writes to the database.
func (s *Store) Forget(ctx context.Context, key, token string) (bool, error) {
	return writing(ctx, s, func(ctx context.Context, f *files, now int64) (bool, error) {
		r, err := f.find(ctx, []byte(key), now)
		if err != nil || !r.Of(token) {
			return false, err
		}
		if _, err = f.receipts.ExecContext(ctx, s.statements.drop, r.Key); err == nil {
			err = f.remove(ctx, r.Key)
		}
		return true, err
	})
}

// writing executes do like answered. do begins with a write to the database. While another process writes
// to the database, do fails and is executed again after a pause. It must not wait for that process
// inside the call, because the work of that process waits for calls before it commits.
func writing[T any](ctx context.Context, s *Store, do func(ctx context.Context, f *files, now int64) (T, error)) (got T, err error) {
	if err := s.takeTurn(ctx); err != nil {
		return got, failure.NotApplied(err)
	}
	defer s.endTurn()
	for {
		blocked := false
		got, err = answered(ctx, s, true, func(ctx context.Context, f *files, now int64) (result T, err error) {
			if result, err = do(ctx, f, now); busy(err) {
				blocked, err = true, nil // the calls in the same transaction must not fail
			}
			return result, err
		})
		if err != nil || !blocked {
			return got, err
		}
		if !takePause(ctx) {
			var none T
			return none, failure.NotApplied(context.Cause(ctx))
		}
	}
}

// insideKey is the context key of the session, for work that runs in a transaction of the store.
type insideKey struct{ store *Store }

// amended puts the receipt to in the place of from. ok is true if r has from or to. changed is true if the
// caller has to write r, which may be nil.
func amended(r *rowstore.Row, token string, from, to []byte) (ok, changed bool) {
	if r.State() != lock.Settled || string(r.Token) != token {
		return false, false
	}
	if ok = bytes.Equal(r.Receipt, to); !ok && bytes.Equal(r.Receipt, from) {
		r.Receipt = to
		return true, true
	}
	return ok, false
}

// Amend is part of [lock.Amender]. In work that runs in a transaction of this store, it writes
// in that transaction: the receipt is replaced when the work is committed. Elsewhere it waits for
// work that writes to the database.
func (s *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	from, to = bytes.Clone(from), bytes.Clone(to)
	if w, inside := ctx.Value(insideKey{s}).(*session); inside {
		if ok, err = s.amendInside(ctx, w.Tx, []byte(key), token, from, to); err != nil {
			return false, fmt.Errorf("sqlitestore: the receipt was not replaced in the work's transaction: %w", failure.Of(err))
		}
		return ok, nil
	}
	return writing(ctx, s, func(ctx context.Context, f *files, now int64) (bool, error) {
		// Work in progress may have amended the same receipt, so the first statement is a write, which fails
		// until the database is unlocked.
		if _, err := f.receipts.ExecContext(ctx, s.statements.drop, []byte{}); err != nil { // no key is empty
			return false, err
		}
		file := f.receipts
		r, err := read(ctx, f.settled, []byte(key), now)
		if err == nil && r.State() == lock.Free {
			file = f.claims
			r, err = read(ctx, f.get, []byte(key), now)
		}
		ok, changed := amended(r, token, from, to)
		if err == nil && changed {
			_, err = file.ExecContext(ctx, s.statements.put, r.Values()...)
		}
		return ok, err
	})
}

// amendInside amends a receipt in the transaction of the work. A receipt in the file of claims is
// copied into the database. After the commit of the work, reads find the copy first.
func (s *Store) amendInside(ctx context.Context, tx *sql.Tx, key []byte, token string, from, to []byte) (ok bool, err error) {
	// The first statement of the work locks the database, and other calls that amend wait for
	// the lock. So the receipt does not change until the work ends.
	if _, err := tx.ExecContext(ctx, s.statements.drop, []byte{}); err != nil {
		return false, err
	}
	r := new(rowstore.Row)
	apart, err := answered(ctx, s, false, func(ctx context.Context, f *files, now int64) (*rowstore.Row, error) {
		r.At = now
		return read(ctx, f.get, key, now)
	})
	if err != nil {
		return false, err
	}
	err = r.Scan(tx.QueryRowContext(ctx, s.statements.get, key))
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.State() == lock.Free {
		r, err = apart, nil
	}
	if err != nil {
		return false, err
	}
	ok, changed := amended(r, token, from, to)
	if changed {
		_, err = tx.ExecContext(ctx, s.statements.put, r.Values()...)
	}
	return ok && err == nil, err
}

// List is part of [lock.Inspector].
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
