package history_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// sloppySQL is a store over SQLite, MariaDB or MySQL with one statement that is wrong.
type sloppySQL struct {
	store
	db  *sql.DB // has the claims
	key string  // the name of the column
}

func newSloppySQL(t *testing.T, addr string, s store) sloppySQL {
	t.Helper()
	path, _, _ := strings.Cut(addr, "?")
	driver, source, key := "sqlite", "file:"+path+"-latch?_pragma=busy_timeout(50)", "key"
	if m, is := s.(mysqlStore); is {
		driver, source, key = "mysql", m.dsn+"?innodb_lock_wait_timeout=1", "lock_key"
	}
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return sloppySQL{s, db, key}
}

// changes executes a statement, and reports whether there was a row for it.
func (s sloppySQL) changes(ctx context.Context, statement string, args ...any) (bool, error) {
	done, err := s.db.ExecContext(context.WithoutCancel(ctx), statement, args...)
	if err != nil {
		return false, errors.Join(lock.ErrNotApplied, err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// sqlRenew renews whatever there is.
type sqlRenew struct{ sloppySQL }

func plantSQLRenew(t *testing.T, addr string, s store) store {
	t.Helper()
	return sqlRenew{newSloppySQL(t, addr, s)}
}

func (s sqlRenew) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.changes(ctx, "UPDATE latch_entries SET ends_at = ends_at + ? WHERE "+s.key+" = ? AND settled = 0", c.Lease.Microseconds(), []byte(key))
}

// sqlDelete releases whatever there is.
type sqlDelete struct{ sloppySQL }

func plantSQLDelete(t *testing.T, addr string, s store) store {
	t.Helper()
	return sqlDelete{newSloppySQL(t, addr, s)}
}

func (s sqlDelete) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	return s.changes(ctx, "DELETE FROM latch_entries WHERE "+s.key+" = ? AND settled = 0", []byte(key))
}

// sqlGreedy claims what others have, over or not.
type sqlGreedy struct{ sloppySQL }

func plantSQLGreedy(t *testing.T, addr string, s store) store {
	t.Helper()
	return sqlGreedy{newSloppySQL(t, addr, s)}
}

func (s sqlGreedy) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if _, err := s.changes(ctx, "DELETE FROM latch_entries WHERE "+s.key+" = ? AND token <> ? AND settled = 0", []byte(key), []byte(c.Token)); err != nil {
		return lock.Entry{}, err
	}
	return s.store.Claim(ctx, key, c)
}
