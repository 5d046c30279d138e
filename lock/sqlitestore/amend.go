package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// insideKey is the context key of the session, for work that runs in a transaction of the store.
type insideKey struct{ store *Store }

// amendment puts one receipt in the place of another.
type amendment struct {
	token    string
	from, to []byte
}

// apply amends r. ok is true if r has the receipt from or to. changed is true if the caller has to
// write the row. r may be nil.
func (a *amendment) apply(r *rowstore.Row) (ok, changed bool) {
	switch {
	case r.State() != lock.Settled || string(r.Token) != a.token:
		return false, false
	case bytes.Equal(r.Receipt, a.to):
		return true, false
	case !bytes.Equal(r.Receipt, a.from):
		return false, false
	}
	r.Receipt = a.to
	return true, true
}

// Amend is part of [lock.Amender]. In work that runs in a transaction of this store, it writes
// in that transaction: the receipt is replaced when the work is committed. Elsewhere it waits for
// work that writes to the database.
func (s *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	a := &amendment{token, bytes.Clone(from), bytes.Clone(to)}
	if w, inside := ctx.Value(insideKey{s}).(*session); inside {
		if ok, err = s.amendInside(ctx, w.Tx, []byte(key), a); err != nil {
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
		ok, changed := a.apply(r)
		if err == nil && changed {
			_, err = file.ExecContext(ctx, s.statements.put, r.Values()...)
		}
		return ok, err
	})
}

// amendInside amends a receipt in the transaction of the work. A receipt in the file of claims is
// copied into the database. After the commit of the work, reads find the copy first.
func (s *Store) amendInside(ctx context.Context, tx *sql.Tx, key []byte, a *amendment) (ok bool, err error) {
	// The first statement of the work locks the database, and other calls that amend wait for
	// the lock. So the receipt does not change until the work ends.
	if _, err := tx.ExecContext(ctx, s.statements.drop, []byte{}); err != nil {
		return false, err
	}
	r := new(rowstore.Row)
	var apart *rowstore.Row
	err = s.call(ctx, false, func(ctx context.Context, f *files, now int64) (err error) {
		r.At = now
		apart, err = read(ctx, f.get, key, now)
		return err
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
	ok, changed := a.apply(r)
	if changed {
		_, err = tx.ExecContext(ctx, s.statements.put, r.Values()...)
	}
	return ok && err == nil, err
}
