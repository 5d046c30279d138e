package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Claim is part of [lock.Store]. It sends one statement, and a second one to read the entry if the
// key is taken. After a claim that found its key taken, the next claim reads first: duplicates
// often come together.
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	work := rowstore.Transactional(key, c.Linger)
	if err := rowstore.Admit(ctx, &s.calls, &s.begins, work); err != nil {
		return lock.Entry{}, err
	}
	var r *rowstore.Row
	reads := c.Replaces == "" && s.keyTaken.Load()
	return rowstore.Claim("pgstore", &c, func() (granted bool, fence int64, _ *rowstore.Row, err error) {
		if reads {
			reads = false
			if r, err = s.read(ctx, rowstore.Later, key); err != nil || !r.YieldsTo(&c) {
				return false, 0, r, err
			}
		}
		granted, fence, err = s.claim(ctx, key, &c, r != nil && !r.Settled, work)
		if err == nil {
			s.keyTaken.Store(!granted)
		}
		if err == nil && !granted {
			r, err = s.read(ctx, rowstore.First, key) // also the row of a late send that takeAway has marked
		}
		return granted, fence, r, err
	})
}

// claim sends a claim. ended says that the key has a row whose claim has ended, and was not settled.
func (s *Store) claim(ctx context.Context, key string, c *lock.Claim, ended, work bool) (granted bool, fence int64, err error) {
	var keep int64
	if keytext.IsRecord(key) {
		keep = rowstore.SweepAfter.Microseconds()
	}
	if work {
		keep = max(keep, s.keep.Load()) // so that the receipt does not change an indexed column
	}
	args := []any{
		[]byte(key), []byte(c.Token), int64(c.Attempt), nonNil(c.Fingerprint), []byte(c.Owner), rowstore.Micros(c.Lease), rowstore.Micros(c.Linger),
		work && !c.Fenced && c.Replaces == "", keep,
	}
	if c.Replaces != "" {
		return s.overtake(ctx, s.statements.takeover, append(args, c.Fenced, []byte(c.Replaces), c.ReplacesHeld))
	}
	s.claims.Add(1)
	s.sweeps.Claim(ctx, 1, s.sweep)
	switch {
	case ended:
		return s.overtake(ctx, s.statements.reclaim, append(args, c.Fenced))
	case c.Fenced:
		batch := new(pgx.Batch) // one transaction, in one round trip
		batch.Queue(s.planned(s.statements.claim), args...)
		batch.Queue(s.planned(s.statements.fence), args[0], args[1])
		return s.grantedBy(ctx, batch, 1)
	}
	err = s.each(ctx, rowstore.Later, s.statements.claim, func(rows pgx.Rows) error {
		granted = true
		return rows.Scan(&fence, nil)
	}, args...)
	return granted, fence, err
}

// overtake replaces the claim of an unsettled row, which it locks in a statement of its own: see
// noted. All are one transaction, in one round trip. Behind PgBouncer, the session may have another
// isolation, in which the second statement would not see what the first has waited for.
func (s *Store) overtake(ctx context.Context, statement string, args []any) (granted bool, fence int64, err error) {
	batch := new(pgx.Batch)
	batch.Queue("start transaction isolation level read committed")
	batch.Queue(s.planned(s.statements.lock), args[0])
	batch.Queue(s.planned(statement), args...)
	batch.Queue("end")
	return s.grantedBy(ctx, batch, 2)
}

// grantedBy runs a batch. The statement after the first ones returns a row if the claim is granted,
// unless an earlier send of it was.
func (s *Store) grantedBy(ctx context.Context, batch *pgx.Batch, first int) (granted bool, fence int64, err error) {
	conn, err := s.acquire(ctx, rowstore.Later)
	if err != nil {
		return false, 0, err
	}
	defer func() { s.giveBack(conn, err) }()
	answers := conn.SendBatch(ctx, batch)
	for range first {
		if _, err = answers.Exec(); err != nil {
			break
		}
	}
	if err == nil {
		err = answers.QueryRow().Scan(&fence, nil)
		if granted = err == nil; errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
	}
	if err = errors.Join(err, answers.Close(), warned(conn)); err != nil {
		return false, 0, failure.Of(err)
	}
	return granted, fence, nil
}

// Renew is part of [lock.Store].
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	args := []any{[]byte(key), []byte(c.Token), rowstore.Micros(c.Lease), rowstore.Micros(c.Linger), rowstore.Transactional(key, c.Linger)}
	if keytext.IsRecord(key) {
		return s.flag(ctx, rowstore.First, s.statements.note, append(args, rowstore.SweepAfter.Microseconds())...)
	}
	return s.flag(ctx, rowstore.First, s.statements.renew, args...)
}

// Settle is part of [lock.Store].
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	ok, err = s.flag(ctx, rowstore.First, s.statements.settle, []byte(key), []byte(c.Token), nonNil(receipt), rowstore.Micros(keep))
	if err != nil || ok {
		return ok, err
	}
	// An earlier send may have settled the entry, even while this send waited for the lock of the
	// row.
	ok, err = s.flag(ctx, rowstore.First, s.statements.settled, []byte(key), []byte(c.Token))
	if errors.Is(err, lock.ErrNotApplied) {
		// This error is about the query only. The receipt may exist.
		err = fmt.Errorf("pgstore: whether the receipt is there already: %s", err.Error())
	}
	return ok, err
}

// Release is part of [lock.Store].
func (s *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	ok, err = s.flag(ctx, rowstore.First, s.statements.release, []byte(key), []byte(c.Token))
	if err != nil || ok {
		return ok, err
	}
	return s.flag(ctx, rowstore.First, s.statements.releaseTaken, []byte(key), []byte(c.Token))
}

// Get is part of [lock.Store].
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	r, err := s.read(ctx, rowstore.Later, key)
	return r.Entry(), err
}

// read returns the row of key, nil if there is none. It reads again, with the note, if a record is not
// settled: one statement for both would make each replay slower.
func (s *Store) read(ctx context.Context, rank rowstore.Rank, key string) (r *rowstore.Row, err error) {
	scan := func(rows pgx.Rows) error {
		r = new(rowstore.Row)
		return scanRow(rows, r, nil)
	}
	err = s.each(ctx, rank, s.statements.get, scan, []byte(key))
	if err == nil && r != nil && !r.Settled && keytext.IsRecord(key) {
		r = nil
		err = s.each(ctx, rank, s.statements.getNoted, scan, []byte(key))
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ClaimSet is part of [lock.SetClaimer]. It sends one statement, and a second one to read the
// entries if one of the keys is taken.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	if err := rowstore.Admit(ctx, &s.calls, nil, false); err != nil {
		return lock.Entry{}, err
	}
	names, tokens := make([][]byte, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		names[i], tokens[i] = []byte(key), []byte(claims[i].Token)
	}
	s.claims.Add(uint64(len(keys)))
	s.sweeps.Claim(ctx, len(keys), s.sweep)
	for range rowstore.MaxClaims {
		taken, err := s.flag(ctx, rowstore.Later, s.statements.claimSet, names, tokens, int64(claims[0].Attempt), []byte(claims[0].Owner), rowstore.Micros(claims[0].Lease))
		switch {
		case raised(err, notAll): // some of the keys were taken meanwhile
		case err != nil || taken:
			return lock.Entry{}, err
		}
		e, ours, err := s.firstOf(ctx, names, claims)
		if err != nil || ours || e.State != lock.Free {
			return e, err
		}
	}
	return lock.Entry{}, rowstore.Unsettled("pgstore")
}

// firstOf returns the first entry that belongs to another claim, or the zero Entry. ours reports
// whether each entry belongs to its own claim.
func (s *Store) firstOf(ctx context.Context, names [][]byte, claims []lock.Claim) (first lock.Entry, ours bool, err error) {
	tokens := make(map[string]string, len(names))
	for i, name := range names {
		tokens[string(name)] = claims[i].Token
	}
	own := 0
	err = s.each(ctx, rowstore.First, s.statements.getSet, func(rows pgx.Rows) error {
		r := new(rowstore.Row)
		if err := scanRow(rows, r, nil, &r.Key); err != nil {
			return err
		}
		switch e := r.Entry(); {
		case e.State == lock.Held && e.Token == tokens[e.Key]:
			own++
		case first.State == lock.Free:
			first = e
		}
		return nil
	}, names)
	return first, own == len(names), err
}

// Forget is part of [lock.Inspector].
func (s *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return s.flag(ctx, rowstore.First, s.statements.forget, []byte(key), []byte(token))
}

// List is part of [lock.Inspector].
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return rowstore.List(ctx, s.rows)
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page(ctx, "pgstore", cursor, limit, match, s.rows)
}

func (s *Store) rows(ctx context.Context, after []byte, limit int, receipts bool) (all []*rowstore.Row, err error) {
	err = s.each(ctx, rowstore.Later, s.statements.page, func(rows pgx.Rows) error {
		r := new(rowstore.Row)
		all = append(all, r)
		return scanRow(rows, r, &r.Key)
	}, after, int64(limit), receipts)
	return all, err
}

// Sweep removes up to limit ended rows, the oldest first, and returns how many it has removed. It
// skips rows that another process is removing. Claims sweep by themselves, so only a program that
// makes no claims needs to call it.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	return s.sweep(ctx, limit, 0)
}

// sweep has its statement planned each time: a plan from the time when the table was empty would read the
// whole table.
func (s *Store) sweep(ctx context.Context, limit int, from int64) (removed int, err error) {
	var upTo int64
	err = s.each(ctx, rowstore.Later, s.statements.sweep, func(rows pgx.Rows) error {
		return rows.Scan(&removed, &upTo, nil)
	}, pgx.QueryExecModeExec, int64(limit), from)
	if err == nil {
		s.sweeps.UpTo(upTo)
	}
	return removed, err
}

// Amend is part of [lock.Amender]. In work that runs in a transaction of this store, it is a
// statement of that transaction: the receipt is replaced when the work is committed.
func (s *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	args := []any{[]byte(key), []byte(token), nonNil(from), nonNil(to)}
	inside, is := ctx.Value(insideKey{s}).(context.Context)
	if !is {
		return s.flag(ctx, rowstore.First, s.statements.amend, args...)
	}
	changed, err := s.amendInside(ctx, inside, args)
	if err != nil {
		return false, fmt.Errorf("pgstore: the receipt was not replaced in the work's transaction: %w", failure.Of(err))
	}
	return changed > 0, nil
}

// insideKey is the context key for the context that a transaction of the store has given to its work.
type insideKey struct{ store *Store }

// amendInside replaces a receipt in the transaction of the work.
func (s *Store) amendInside(ctx, work context.Context, args []any) (changed int64, err error) {
	statements, err := s.located(ctx)
	if err != nil {
		return 0, err
	}
	if tx, is := Tx(work); is {
		tag, err := tx.Exec(ctx, statements.amend, args...)
		return tag.RowsAffected(), err
	}
	tx, _ := SQLTx(work)
	result, err := tx.ExecContext(ctx, statements.amend, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// flag returns the first column of a statement's row, false if there is no row.
func (s *Store) flag(ctx context.Context, r rowstore.Rank, statement string, args ...any) (ok bool, err error) {
	err = s.each(ctx, r, statement, func(rows pgx.Rows) error {
		values := make([]any, len(rows.FieldDescriptions()))
		values[0] = &ok
		return rows.Scan(values...)
	}, args...)
	return ok && err == nil, err
}

// each runs a statement on one of the store's own connections, and calls read for each row until read
// returns an error.
func (s *Store) each(ctx context.Context, r rowstore.Rank, statement string, read func(pgx.Rows) error, args ...any) error {
	conn, err := s.acquire(ctx, r)
	if err != nil {
		return err
	}
	defer func() { s.giveBack(conn, err) }() // also after a panic of a hook
	rows, err := conn.Query(ctx, s.planned(statement), args...)
	for err == nil && rows.Next() {
		err = read(rows)
	}
	if rows.Close(); err == nil {
		err = rows.Err()
	}
	return failure.Of(errors.Join(err, warned(conn)))
}

// planned changes the text of a statement whenever the number of claims has doubled, so that the
// statement is prepared and planned again. The server keeps the plan of a prepared statement until the
// table is analyzed, and a plan from the time when the table was tiny reads the whole table: a claim
// beside 60,000 rows took 13 ms in place of 0.1 ms. To plan each call (plan_cache_mode) makes a claim, a
// renewal and a release take 2.5 times as long, and no setting reaches the sessions of the work, or those
// behind PgBouncer. A comment is not planned, and costs two plans for each doubling.
func (s *Store) planned(statement string) string {
	return statement + " -- " + strconv.Itoa(bits.Len64(s.claims.Load()))
}

// scanRow reads one row into first and r: the columns of r, with the receipt as the last, follow the
// columns of first. Its times count from the moment of the query.
func scanRow(rows pgx.Rows, r *rowstore.Row, first ...any) error {
	var linger int64
	err := rows.Scan(append(first, &r.Token, &r.Settled, &r.Attempt, &r.Fingerprint, &r.Owner, &r.Fence, &linger, &r.Ends, &r.Receipt)...)
	if err != nil {
		return fmt.Errorf("a row that is not of this store: %w", err)
	}
	r.Over = rowstore.Plus(r.Ends, linger)
	return nil
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
