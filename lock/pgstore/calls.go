package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// Claim is part of [lock.Store]. It is one statement, and a second one if another claim was
// granted while the first was on its way: that has seen what was there before.
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.claim(ctx, key, &c)
	if err != nil || e.State == lock.Held || e.State == lock.Settled || e.State == lock.Abandoned && e.Token != c.Replaces {
		return e, err
	}
	return s.Get(ctx, key)
}

func (s *Store) claim(ctx context.Context, key string, c *lock.Claim) (lock.Entry, error) {
	work := transactional(key, c.Linger)
	if err := s.admit(ctx, work); err != nil {
		return lock.Entry{}, err
	}
	args := []any{
		[]byte(key), []byte(c.Token), int64(c.Attempt), nonNil(c.Fingerprint), []byte(c.Owner),
		micros(c.Lease), micros(c.Linger), c.Fenced,
	}
	if c.Replaces != "" {
		return s.entry(ctx, s.statements.takeover, append(args, []byte(c.Replaces))...)
	}
	s.sweepSometimes(ctx)
	args = append(args[:7], work && !c.Fenced)
	if c.Fenced {
		return s.claimFenced(ctx, args)
	}
	return s.entry(ctx, s.statements.claim, args...)
}

// claimFenced is a claim whose fence is drawn when it has won the key: one that was drawn
// before could be lower than that of a holder it had to wait for. Both statements are one
// transaction, and one round trip.
func (s *Store) claimFenced(ctx context.Context, args []any) (e lock.Entry, err error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return lock.Entry{}, err
	}
	defer giveBack(conn)
	batch := new(pgx.Batch)
	batch.Queue(s.statements.claim, args...)
	batch.Queue(s.statements.fence, args[0], args[1])
	answers := conn.SendBatch(ctx, batch)
	rows, _ := answers.Query() // its error is that of the rows, too
	e, err = entryOf(rows)
	if err == nil {
		err = answers.QueryRow().Scan(&e.Fence)
		if errors.Is(err, pgx.ErrNoRows) { // it was not granted, or is granted again
			err = nil
		}
	}
	if err = errors.Join(err, answers.Close()); err != nil {
		return lock.Entry{}, storeError(err)
	}
	return e, nil
}

// transactional reports whether a claim is of a run in a transaction: a record, which is not
// remembered once its lease is over. The server may forget it in a crash.
func transactional(key string, linger time.Duration) bool {
	return keytext.IsRecord(key) && linger == 0
}

// Renew is part of [lock.Store].
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.found(ctx, s.statements.renew, []byte(key), []byte(c.Token), micros(c.Lease), micros(c.Linger), transactional(key, c.Linger))
}

// Settle is part of [lock.Store].
func (s *Store) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	ok, err = s.found(ctx, s.statements.settle, []byte(key), []byte(token), nonNil(receipt), micros(keep))
	if err != nil || ok {
		return ok, err
	}
	// An earlier send of it may have come through, even while this one waited for it.
	ok, err = s.found(ctx, s.statements.settled, []byte(key), []byte(token))
	if errors.Is(err, lock.ErrNotApplied) {
		// It is the look that was not applied. The receipt may be there.
		err = fmt.Errorf("pgstore: whether the receipt is there already: %s", err.Error())
	}
	return ok, err
}

// Release is part of [lock.Store].
func (s *Store) Release(ctx context.Context, key, token string) (ok bool, err error) {
	return s.flag(ctx, s.statements.release, []byte(key), []byte(token))
}

// Get is part of [lock.Store].
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	return s.entry(ctx, s.statements.get, []byte(key))
}

// Forget is part of [lock.Inspector].
func (s *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return s.flag(ctx, s.statements.forget, []byte(key), []byte(token))
}

// entry returns the entry of the one row of a query, the zero Entry if there is none.
func (s *Store) entry(ctx context.Context, statement string, args ...any) (e lock.Entry, err error) {
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return lock.Entry{}, err
	}
	e, err = entryOf(rows)
	return e, storeError(err)
}

// entryOf closes rows.
func entryOf(rows pgx.Rows) (e lock.Entry, err error) {
	defer rows.Close()
	if rows.Next() {
		extra := len(rows.FieldDescriptions()) - entryColumns
		e, err = scanEntry(rows, 0, extra)
		if err != nil {
			return lock.Entry{}, err
		}
	}
	rows.Close()
	return e, rows.Err()
}

// found reports whether a statement has returned a row.
func (s *Store) found(ctx context.Context, statement string, args ...any) (ok bool, err error) {
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	ok = rows.Next()
	rows.Close()
	return ok, storeError(rows.Err())
}

// flag returns what the first column of a statement's row says, false if there is none.
func (s *Store) flag(ctx context.Context, statement string, args ...any) (ok bool, err error) {
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	if rows.Next() {
		values := make([]any, len(rows.FieldDescriptions()))
		values[0] = &ok
		err = rows.Scan(values...)
	}
	rows.Close()
	return ok && err == nil, storeError(errors.Join(rows.Err(), err))
}

func (s *Store) query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, statement, args...)
	if err != nil {
		giveBack(conn)
		return nil, storeError(err)
	}
	return &ownRows{Rows: rows, conn: conn}, nil
}

// acquire returns one of the store's own connections.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	pool, err := s.own(ctx)
	if err != nil {
		return nil, err
	}
	s.calls.enter()
	conn, err := pool.Acquire(ctx)
	s.calls.leave(err == nil)
	if err != nil { // nothing was sent
		return nil, fmt.Errorf("%w: pgstore: %w", lock.ErrNotApplied, err)
	}
	return conn, nil
}

// giveBack ends the use of a connection. One that is closed, because a call had no answer,
// leaves the pool at once: pgx may take a quarter of a minute to be done with it, and would
// count it for as long.
func giveBack(conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() {
		conn.Release()
		return
	}
	_ = conn.Hijack().PgConn().Conn().Close()
}

// ownRows gives back their connection when they are closed.
type ownRows struct {
	pgx.Rows

	conn *pgxpool.Conn // nil when it was given back
}

func (r *ownRows) Close() {
	r.Rows.Close()
	if r.conn != nil {
		giveBack(r.conn)
		r.conn = nil
	}
}
