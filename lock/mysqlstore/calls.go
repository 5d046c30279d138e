package mysqlstore

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
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
