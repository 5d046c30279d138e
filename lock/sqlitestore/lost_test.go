package sqlitestore_test

import (
	"context"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// loseClaims are the ways in which a file of claims is lost while processes use it.
var loseClaims = map[string]func(t *testing.T, path string){
	"removed": func(t *testing.T, path string) {
		t.Helper()
		for _, end := range []string{"", "-wal", "-shm"} {
			require.NoError(t, os.Remove(path+end))
		}
	},
	"restored from a backup": func(t *testing.T, path string) {
		t.Helper()
		backup := filepath.Join(t.TempDir(), "shop.db")
		open(t, backup).Close()
		for _, end := range []string{"-wal", "-shm"} {
			require.NoError(t, os.Remove(path+end))
		}
		require.NoError(t, os.Rename(backup+"-latch", path))
	},
}

// The file of claims is lost while work runs, and another process claims the key: one of both
// commits, and the other gets its receipt.
func TestClaimsLostWhileInUse(t *testing.T) {
	t.Parallel()
	for name, lose := range loseClaims {
		for _, earlier := range []bool{true, false} {
			parallel.Run(t, name, func(t *testing.T) {
				s := openShop(t)
				own, other := sqlshop.Locker(t, s.store), open(t, s.path)
				receipt, _, err := own.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
					if earlier { // the work has written before the other can
						if err := exec(ctx, "SELECT 1"); err != nil {
							return nil, err
						}
					}
					lose(t, s.path+"-latch")
					if !earlier {
						require.Equal(t, "other", must.Run(t)(sqlshop.Locker(t, other).Once(ctx, "k", nil, s.Order("other"))))
					}
					return s.Order("own")(ctx)
				})
				if earlier {
					require.Error(t, err, "its claim is gone")
					receipt, _, err = sqlshop.Locker(t, other).Once(t.Context(), "k", nil, s.Order("other"))
				}
				require.NoError(t, err)
				require.Equal(t, "other", string(receipt))
				require.Equal(t, []string{"other"}, s.Orders(t))
				require.Equal(t, "other", must.Replay(t)(own.Once(t.Context(), "k", nil, s.Order("again"))))
			})
		}
		parallel.Run(t, "a lock, "+name, func(t *testing.T) {
			s := openShop(t)
			sqlshop.Claim(t, s.store, "k", "first")
			lose(t, s.path+"-latch")
			sqlshop.Claim(t, open(t, s.path), "k", "second")
			ok := must.Get(s.store.Renew(t.Context(), "k", lock.Claim{Token: "first", Lease: time.Minute}))(t)
			require.False(t, ok, "both processes hold the key")
		})
	}
}

// A living receipt is not replaced, even by the holder of the claim: a file of claims that is lost at
// another moment leaves two processes with a claim each.
func TestReceiptIsNotReplaced(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	for over, committed := range map[string]bool{"+1 hour": false, "-1 hour": true} {
		ctx, tx, _ := s.begin(t, over)
		s.exec(t, `INSERT INTO latch_entries (key, token, attempt, fence, settled, receipt, ends_at, over_at)
			SELECT CAST(?1 AS BLOB), CAST('another' AS BLOB), 1, 0, 1, CAST('first' AS BLOB), at, at FROM (SELECT unixepoch('now', ?1) * 1000000 AS at)`, over)
		require.NoError(t, exec(ctx, insert, over))
		require.Equal(t, committed, must.Get(tx.Settle(t.Context(), []byte("second"), time.Minute))(t))
		e := must.Entry(t)(s.store.Get(t.Context(), over))
		require.Equal(t, map[bool]string{true: "second", false: "first"}[committed], string(e.Receipt))
	}
	require.Equal(t, []string{"-1 hour"}, s.Orders(t))
}

// A process that opens the database by a second name has a file of claims of its own.
func TestHardLink(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	link := filepath.Join(filepath.Dir(s.path), "link.db")
	require.NoError(t, os.Link(s.path, link))
	require.ErrorContains(t, s.store.Check(t.Context()), "hard link")
	s.store.Close()
	for _, name := range []string{s.path, link} {
		_, err := sqlitestore.Open(t.Context(), name)
		require.ErrorContains(t, err, "hard link")
		require.ErrorIs(t, err, lock.ErrDenied)
	}
	require.NoError(t, os.Remove(link))
	require.NoError(t, open(t, s.path).Check(t.Context()))
}

// A DSN is no path: its settings would be a part of the file's name.
func TestOpenRefusesDSN(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dsn := range []string{"file:shop.db", "file::memory:?cache=shared", "shop.db?_pragma=synchronous(OFF)", "./shop.db?mode=ro"} {
		_, err := sqlitestore.Open(t.Context(), dsn)
		require.ErrorContains(t, err, "Open takes the path of a file", dsn)
		require.ErrorIs(t, err, lock.ErrDenied)
	}
	require.Empty(t, must.Get(filepath.Glob("*"))(t))
}

// A job of root looks into the database of a service: what it leaves is the service's.
func TestFilesThatRootMakes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	path := file(t)
	open(t, path).Close()
	require.NoError(t, os.Remove(path+"-latch"))
	require.NoError(t, os.Chown(path, 65534, 65534))
	open(t, path)
	for _, end := range []string{"-latch", "-latch-wal", "-latch-shm", "-wal", "-shm"} {
		out := must.Get(osexec.CommandContext(t.Context(), "stat", "-c", "%u:%g", path+end).Output())(t)
		require.Equal(t, "65534:65534\n", string(out), end)
	}
}
