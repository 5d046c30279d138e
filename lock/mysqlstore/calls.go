package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Claim is part of [lock.Store]. It sends a statement that reads the entry, and one that inserts it if
// there is none. Claims that come together share the statements, and the wait for the disk.
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if err := rowstore.Admit(ctx, &s.calls, &s.begins, rowstore.Transactional(key, c.Linger)); err != nil {
		return lock.Entry{}, err
	}
	if c.Replaces == "" {
		s.sweeps.Claim(ctx, 1, s.sweep)
	}
	return rowstore.Claim("mysqlstore", &c, func() (granted bool, fence int64, r *rowstore.Row, err error) {
		a, err := s.ask(ctx, key, &c)
		if err != nil {
			return false, 0, nil, err
		}
		if granted = a.granted; !granted && a.row.YieldsTo(&c) && (a.row != nil || c.Fenced) {
			granted, fence, err = s.take(ctx, key, &c, a.row)
		}
		return granted, fence, a.row, err
	})
}

// claimsAtOnce bounds the claims that share their statements.
const claimsAtOnce = 64

// asked is a claim that shares its statements with others, and their result for it. It outlives the call
// of a caller that leaves.
type asked struct {
	key     string
	entry   expression // the values of its row
	inserts bool       // it inserts its row if there is none: it draws no fence, and replaces no entry

	row     *rowstore.Row // which was read; nil if there was none
	granted bool          // its row was inserted
}

// ask reads the row of a key. If there is none, it inserts the entry of c, unless c needs a fence or
// replaces another entry.
func (s *Store) ask(ctx context.Context, key string, c *lock.Claim) (*asked, error) {
	call, err := s.claims.Enter(ctx, &asked{key: key, entry: entry(key, c), inserts: c.Replaces == "" && !c.Fenced})
	if err != nil {
		return nil, failure.NotApplied(err)
	}
	select {
	case <-call.Done():
		return call.Of, call.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("mysqlstore: %w", context.Cause(ctx))
	}
}

// serveClaims executes the claims that wait, on one connection.
func (s *Store) serveClaims(ctx context.Context) {
	_, until := s.claims.Waiting()
	waits, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var calls []*rowstore.Call[*asked]
	var errs []error
	err := func() (err error) {
		defer send.Recover(&err) // a hook of the driver must not end the process
		return s.withOwn(waits, rowstore.Later, func(conn *sql.Conn) (err error) {
			if calls == nil {
				calls, until = s.takeClaims()
			}
			ctx, cancel := context.WithDeadline(ctx, until)
			defer cancel()
			errs, err = s.claimTogether(ctx, conn, calls)
			return err
		})
	}()
	if calls == nil && err != nil && time.Now().Before(until) {
		calls, _ = s.takeClaims() // there is no connection, and not for the lack of time
	}
	for i, c := range calls {
		if errs != nil {
			err = errs[i]
		}
		c.End(err)
	}
}

// takeClaims takes the claims that wait, each key once.
func (s *Store) takeClaims() (calls []*rowstore.Call[*asked], until time.Time) {
	keys := make(map[string]bool)
	return s.claims.Take(func(a *asked) bool {
		if keys[a.key] || len(keys) == claimsAtOnce {
			return false
		}
		keys[a.key] = true
		return true
	})
}

// claimTogether executes claims. If the server refuses them, or another process is faster for one of
// the keys twice, each is executed alone, and errs has their errors: one must not fail the others.
func (s *Store) claimTogether(ctx context.Context, conn *sql.Conn, calls []*rowstore.Call[*asked]) (errs []error, err error) {
	var all []*asked
	for _, c := range calls {
		all = append(all, c.Of)
	}
	// Other processes insert the same keys in the same order, so that there is no deadlock.
	slices.SortFunc(all, func(a, b *asked) int { return strings.Compare(a.key, b.key) })
	if err = s.claimAll(ctx, conn, all); isDuplicate(err) {
		err = s.claimAll(ctx, conn, all)
	}
	if len(all) < 2 || !refused(err) && !isTooLarge(err) || isDemoted(err) {
		return nil, err
	}
	for _, c := range calls {
		errs = append(errs, failure.Of(s.claimAll(ctx, conn, []*asked{c.Of})))
	}
	return errs, nil
}

// claimAll reads the rows of all keys, and inserts the ones that are missing. A claim alone is
// inserted first, unless the last key was taken: duplicates often come together.
func (s *Store) claimAll(ctx context.Context, conn *sql.Conn, all []*asked) error {
	keys, of := make(list, len(all)), make(map[string]*asked, len(all))
	for i, a := range all {
		keys[i], of[a.key] = []byte(a.key), a
	}
	switch {
	case len(all) == 0: // their callers have left
		return nil
	case len(all) == 1 && all[0].inserts && !s.keyTaken.Load():
		if err := s.insert(ctx, conn, s.statements.insertAbsent, all); err != nil || all[0].granted {
			return err
		}
	}
	taken := false
	err := s.readAll(ctx, conn, keys, func(r *rowstore.Row) {
		if a := of[string(r.Key)]; a != nil {
			a.row, taken = r, true
		}
	})
	if s.keyTaken.Store(taken); err != nil {
		return fmt.Errorf("%w: %w", errUncommitted, err)
	}
	missing := slices.DeleteFunc(slices.Clone(all), func(a *asked) bool { return !a.inserts || a.row != nil })
	return s.insert(ctx, conn, s.statements.insert, missing)
}

// insert inserts all of the rows, or none. If another process was faster for the only one, it returns no
// error.
func (s *Store) insert(ctx context.Context, conn *sql.Conn, statement string, all []*asked) error {
	if len(all) == 0 {
		return nil
	}
	var entries []string
	for _, a := range all {
		entries = append(entries, string(a.entry))
	}
	changed, err := s.execOn(ctx, conn, text(statement, expression(strings.Join(entries, "), (")), all[0].key))
	for _, a := range all {
		a.granted = err == nil && changed > 0
	}
	if len(all) == 1 && isDuplicate(err) {
		return nil
	}
	return err
}

// values returns the values of the entry of a claim.
func values(key string, c *lock.Claim) []any {
	return []any{key, c.Token, int64(c.Attempt), c.Fingerprint, c.Owner, rowstore.Micros(c.Lease), rowstore.Micros(c.Linger)}
}

// entry returns the values of the row of a claim.
func entry(key string, c *lock.Claim) expression { return expression(text(row, values(key, c)...)) }

// take puts the entry of c in the place of r, unless r has changed since it was read. r is nil if there
// was none.
func (s *Store) take(ctx context.Context, key string, c *lock.Claim, r *rowstore.Row) (granted bool, fence int64, err error) {
	statement := text(s.statements.insert, entry(key, c))
	if r != nil {
		statement = text(s.statements.replace, append(values(key, c), r.Token, r.Settled, r.Ends, r.Over, c.Replaces == "")...)
	}
	if !c.Fenced {
		changed, err := s.exec(ctx, rowstore.Later, statement)
		return changed > 0, 0, err
	}
	err = s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		return inTx(ctx, conn, func() error {
			changed, err := changes(conn.ExecContext(ctx, statement))
			if granted = changed > 0; isDuplicate(err) {
				return nil
			}
			if err != nil || !granted {
				return err
			}
			fence, err = s.fenced(ctx, conn, key, c.Token)
			return err
		})
	})
	return granted && err == nil, fence, err
}

// fenced draws the fence of a claim that has won the key.
func (s *Store) fenced(ctx context.Context, conn *sql.Conn, key, token string) (fence int64, err error) {
	if fence, err = s.draw(ctx, conn); err == nil {
		_, err = conn.ExecContext(ctx, text(s.statements.fence, key, token, fence))
	}
	return fence, err
}

// draw returns a fence that is higher than all before. It leaves no row.
func (s *Store) draw(ctx context.Context, conn *sql.Conn) (fence int64, err error) {
	drawn, err := conn.ExecContext(ctx, s.statements.drawFence)
	if err != nil {
		return 0, err
	}
	if fence, err = drawn.LastInsertId(); err == nil {
		_, err = conn.ExecContext(ctx, text(s.statements.dropFence, fence))
	}
	return fence, err
}

// read returns the row of a key, nil if there is none.
func (s *Store) read(ctx context.Context, r rowstore.Rank, key string) (found *rowstore.Row, err error) {
	err = s.withOwn(ctx, r, func(conn *sql.Conn) error {
		found = nil
		return s.readAll(ctx, conn, list{[]byte(key)}, func(r *rowstore.Row) { found = r })
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// readAll calls each with the rows of keys. If COMMITs wait for a replica, readAll returns when the
// replica has the receipts, too: it commits an unused fence, for which the server waits. Without it, a
// reader could see a commit that no replica has: on a server that has recovered from a crash, or after a
// COMMIT was killed while it waited.
func (s *Store) readAll(ctx context.Context, conn *sql.Conn, keys list, each func(*rowstore.Row)) error {
	var await bool
	err := s.withServer(ctx, conn, func(is *server) error {
		rows, err := conn.QueryContext(ctx, text(s.statements.get, keys, is.waits))
		return rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
			var r rowstore.Row
			var replicated bool
			if err := r.Scan(rows, &r.At, &replicated); err != nil {
				return err
			}
			await = await || r.Settled && replicated
			each(&r)
			return nil
		})
	})
	if err != nil || !await {
		return err
	}
	return inTx(ctx, conn, func() error {
		_, err := s.draw(ctx, conn)
		return err
	})
}

// changesRow runs a statement, and reports whether it has changed a row. If it has not, an earlier
// send of the call may have changed the row: the function is finds this out from the row of the
// key.
func (s *Store) changesRow(ctx context.Context, statement, key string, is func(*rowstore.Row) bool) (bool, error) {
	n, err := s.exec(ctx, rowstore.First, statement)
	if err != nil || n > 0 {
		return n > 0, err
	}
	r, err := s.read(ctx, rowstore.First, key)
	return err == nil && is(r), err
}

// Renew is part of [lock.Store].
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	statement := text(s.statements.renew, key, c.Token, rowstore.Micros(c.Lease), rowstore.Micros(c.Linger))
	return s.changesRow(ctx, statement, key, func(r *rowstore.Row) bool { return r.Of(c.Token) && !r.Settled })
}

// Settle is part of [lock.Store].
func (s *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	statement := text(s.statements.settle, key, c.Token, receipt, rowstore.Micros(keep))
	return s.changesRow(ctx, statement, key, func(r *rowstore.Row) bool { return r.Of(c.Token) && r.Settled })
}

// Release is part of [lock.Store].
func (s *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	n, err := s.exec(ctx, rowstore.First, text(s.statements.release, key, c.Token))
	return n > 0, err
}

// Get is part of [lock.Store].
func (s *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	r, err := s.read(ctx, rowstore.Later, key)
	return r.Entry(), err
}

// Forget is part of [lock.Inspector].
func (s *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	n, err := s.exec(ctx, rowstore.First, text(s.statements.forget, key, token))
	return n > 0, err
}

// List is part of [lock.Inspector].
func (s *Store) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return rowstore.List(ctx, s.rows)
}

// Page is part of [lock.Inspector]. The cursor is a key.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	return rowstore.Page(ctx, "mysqlstore", cursor, limit, match, s.rows)
}

func (s *Store) rows(ctx context.Context, after []byte, limit int, receipts bool) (all []*rowstore.Row, err error) {
	statement := s.statements.page
	if receipts {
		statement = s.statements.list
	}
	err = s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		all = nil
		rows, err := conn.QueryContext(ctx, text(statement, after, int64(limit)))
		return rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
			r := new(rowstore.Row)
			all = append(all, r)
			return r.Scan(rows, &r.At)
		})
	})
	return all, err
}

// Sweep removes up to limit rows that ended ten minutes ago or earlier, the oldest first, and
// returns how many it has removed. It skips rows that another process is removing. Claims
// sweep by themselves, so only a program that makes no claims needs to call it.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	return s.sweep(ctx, limit, 0)
}

func (s *Store) sweep(ctx context.Context, limit int, from int64) (removed int, err error) {
	var upTo int64
	err = s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		return inTx(ctx, conn, func() error {
			removed = 0
			var before int64
			if err := conn.QueryRowContext(ctx, text("SELECT "+now+" - $1", rowstore.SweepAfter.Microseconds())).Scan(&before); err != nil {
				return err
			}
			var keys list
			rows, err := conn.QueryContext(ctx, text(s.statements.ended, from, before, int64(limit)))
			err = rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
				var key []byte
				err := rows.Scan(&key, &upTo)
				keys = append(keys, key)
				return err
			})
			if len(keys) < limit {
				upTo = before
			}
			if err != nil || len(keys) == 0 {
				return err
			}
			n, err := changes(conn.ExecContext(ctx, text(s.statements.remove, keys)))
			removed = int(n)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	s.sweeps.UpTo(upTo)
	return removed, nil
}
