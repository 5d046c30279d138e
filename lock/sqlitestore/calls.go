package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
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
	var e lock.Entry
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	err := s.call(ctx, c.Linger > 0, func(ctx context.Context, f *files, now int64) error {
		r, err := f.find(ctx, []byte(key), now)
		if err != nil {
			return err
		}
		if r.YieldsTo(&c) {
			r = rowstore.RowOf(key, &c, now)
			if c.Fenced {
				if err := f.fence.QueryRowContext(ctx, now).Scan(&r.Fence); err != nil {
					return err
				}
			}
			if err := f.write(ctx, r); err != nil {
				return err
			}
		}
		e = r.Entry()
		return nil
	})
	if err != nil {
		return lock.Entry{}, err
	}
	return e, nil
}

// change calls change with the entry of token under key. ok is false if there is no such entry.
func (s *Store) change(ctx context.Context, durable bool, key, token string, change func(ctx context.Context, f *files, r *rowstore.Row) (bool, error)) (bool, error) {
	var ok bool // the call may go on after an error, so only a call without one lets it be read
	err := s.call(ctx, durable, func(ctx context.Context, f *files, now int64) error {
		r, err := f.find(ctx, []byte(key), now)
		if ok = err == nil && r.Of(token); ok {
			ok, err = change(ctx, f, r)
		}
		return err
	})
	return err == nil && ok, err
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
	var e lock.Entry
	err := s.call(ctx, false, func(ctx context.Context, f *files, now int64) error {
		r, err := f.find(ctx, []byte(key), now)
		e = r.Entry()
		return err
	})
	if err != nil {
		return lock.Entry{}, err
	}
	return e, nil
}

// Forget is part of [lock.Inspector]. A receipt of a transaction is removed while no work
// writes to the database.
func (s *Store) Forget(ctx context.Context, key, token string) (bool, error) {
	var ok bool
	err := s.writing(ctx, func(ctx context.Context, f *files, now int64) error {
		r, err := f.find(ctx, []byte(key), now)
		if ok = err == nil && r.Of(token); !ok {
			return err
		}
		if _, err := f.receipts.ExecContext(ctx, s.statements.drop, r.Key); err != nil {
			return err
		}
		return f.remove(ctx, r.Key)
	})
	return err == nil && ok, err
}

// writing executes do, which begins with a write to the database. While another process writes
// to the database, do fails and is executed again after a pause. It must not wait for that process
// inside the call, because the work of that process waits for calls before it commits.
func (s *Store) writing(ctx context.Context, do execution) error {
	if err := s.takeTurn(ctx); err != nil {
		return failure.NotApplied(err)
	}
	defer s.endTurn()
	for {
		var blocked bool
		err := s.call(ctx, true, func(ctx context.Context, f *files, now int64) error {
			err := do(ctx, f, now)
			if blocked = busy(err); blocked {
				return nil // the calls in the same transaction must not fail
			}
			return err
		})
		if err != nil || !blocked {
			return err
		}
		if !takePause(ctx) {
			return failure.NotApplied(context.Cause(ctx))
		}
	}
}
