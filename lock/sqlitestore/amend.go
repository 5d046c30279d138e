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
	var amended bool // the call may go on after an error, so only a call without one lets it be read
	err = s.writing(ctx, func(ctx context.Context, f *files, now int64) (err error) {
		amended, err = s.amendApart(ctx, f, []byte(key), a, now)
		return err
	})
	if err != nil {
		return false, err
	}
	return amended, nil
}

// amendApart amends a receipt outside of work, in the file that has it. Work in progress may have
// amended the same receipt, so the first statement is a write, which fails until the database is
// unlocked.
func (s *Store) amendApart(ctx context.Context, f *files, key []byte, a *amendment, now int64) (ok bool, err error) {
	if _, err := f.receipts.ExecContext(ctx, s.statements.drop, []byte{}); err != nil { // no key is empty
		return false, err
	}
	r, err := read(ctx, f.settled, key, now)
	if err != nil {
		return false, err
	}
	if r.State() != lock.Free {
		ok, changed := a.apply(r)
		if changed {
			_, err = f.receipts.ExecContext(ctx, s.statements.put, r.Values()...)
		}
		return ok, err
	}
	if r, err = read(ctx, f.get, key, now); err != nil {
		return false, err
	}
	ok, changed := a.apply(r)
	if changed {
		err = f.write(ctx, r)
	}
	return ok, err
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
