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

// sloppyFile is a store over SQLite with one statement that is wrong.
type sloppyFile struct {
	store
	claims *sql.DB
}

func newSloppyFile(t *testing.T, addr string, s store) sloppyFile {
	t.Helper()
	path, _, _ := strings.Cut(addr, "?")
	claims, err := sql.Open("sqlite", "file:"+path+"-latch?_pragma=busy_timeout(50)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, claims.Close()) })
	return sloppyFile{s, claims}
}

// changes executes a statement, and reports whether there was a row for it.
func (s sloppyFile) changes(ctx context.Context, statement string, args ...any) (bool, error) {
	done, err := s.claims.ExecContext(context.WithoutCancel(ctx), statement, args...)
	if err != nil {
		return false, errors.Join(lock.ErrNotApplied, err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// fileRenew renews whatever there is.
type fileRenew struct{ sloppyFile }

func plantFileRenew(t *testing.T, addr string, s store) store {
	t.Helper()
	return fileRenew{newSloppyFile(t, addr, s)}
}

func (s fileRenew) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.changes(ctx, "UPDATE latch_entries SET ends_at = ends_at + ? WHERE key = ? AND settled = 0", c.Lease.Microseconds(), []byte(key))
}

// fileDelete releases whatever there is.
type fileDelete struct{ sloppyFile }

func plantFileDelete(t *testing.T, addr string, s store) store {
	t.Helper()
	return fileDelete{newSloppyFile(t, addr, s)}
}

func (s fileDelete) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	return s.changes(ctx, "DELETE FROM latch_entries WHERE key = ? AND settled = 0", []byte(key))
}

// fileGreedy claims what others have, over or not.
type fileGreedy struct{ sloppyFile }

func plantFileGreedy(t *testing.T, addr string, s store) store {
	t.Helper()
	return fileGreedy{newSloppyFile(t, addr, s)}
}

func (s fileGreedy) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if _, err := s.changes(ctx, "DELETE FROM latch_entries WHERE key = ? AND token <> ? AND settled = 0", []byte(key), []byte(c.Token)); err != nil {
		return lock.Entry{}, err
	}
	return s.store.Claim(ctx, key, c)
}
