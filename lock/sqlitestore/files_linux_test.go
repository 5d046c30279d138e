package sqlitestore_test

import (
	"bufio"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
)

// Files that a process may not write to, as a user with no other rights sees them.
func TestFilesOfAnotherUser(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, claims, dir os.FileMode
		want              string // of the class
	}{
		"all may write":           {0o666, 0o666, 0o777, "false  <nil>"},
		"the directory":           {0o666, 0o666, 0o555, "true readonly"},
		"the database":            {0o444, 0o666, 0o777, "true readonly"},
		"the claims":              {0o666, 0o444, 0o777, "true readonly"},
		"the database is private": {0o600, 0o666, 0o777, "true cantopen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "shop") //nolint:usetesting // another user is to reach it
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			path := filepath.Join(dir, "shop.db")
			open(t, path).Close()
			require.NoError(t, os.Chmod(path, tt.file))
			require.NoError(t, os.Chmod(path+"-latch", tt.claims))
			require.NoError(t, os.Chmod(dir, tt.dir))
			cmd := osexec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), "LATCH_TEST_OPEN_FILE="+path)
			if os.Getuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			} else if tt.file == 0o600 {
				t.Skip("SKIPPED, the file belongs to this user: run as root, the test opens it as another one")
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), tt.want)
			require.NoError(t, os.Chmod(dir, 0o700))
		})
	}
}

// The log of the claims is lost, with or without its index, as when a backup is copied over the file.
// Another process claims a key. It and the process before it do not both hold the key, and later
// processes are served.
func TestClaimsWhoseLogIsLost(t *testing.T) {
	t.Parallel()
	for _, lost := range [][]string{{"-wal"}, {"-wal", "-shm"}} {
		s := openShop(t)
		another := func() (says string, end func()) {
			cmd := osexec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), "LATCH_TEST_OPEN_FILE="+s.path)
			stay := must.Get(cmd.StdinPipe())(t)
			out := must.Get(cmd.StdoutPipe())(t)
			require.NoError(t, cmd.Start())
			says = must.Get(bufio.NewReader(out).ReadString('\n'))(t)
			return says, func() {
				require.NoError(t, stay.Close())
				require.NoError(t, cmd.Wait())
			}
		}
		sqlshop.Claim(t, s.store, "k", "first")
		for _, end := range lost {
			require.NoError(t, os.Remove(s.path+"-latch"+end))
		}
		says, end := another()
		ok := must.Get(s.store.Renew(t.Context(), "k", lock.Claim{Token: "first", Lease: time.Minute}))(t)
		require.NotEqual(t, ok, strings.HasSuffix(says, " t\n"), "both hold it: %s", says)
		end()
		says, end = another()
		end()
		require.Contains(t, says, "false  <nil>")
	}
}

// A file system without room refuses claims and receipts, keeps its entries, and serves again when
// there is room.
func TestFileSystemThatIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("SKIPPED, this time without a full file system: this user may not mount one: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }) // a child of another test has its files for an instant
	s := shopAt(t, filepath.Join(dir, "shop.db"))
	l := sqlshop.Locker(t, s.store)
	must.Run(t)(l.Once(t.Context(), "first", nil, s.Order("tea")))
	sqlshop.Claim(t, s.store, "held", "t")

	filler := filepath.Join(dir, "filler")
	require.ErrorIs(t, os.WriteFile(filler, make([]byte, 2<<20), 0o600), syscall.ENOSPC)
	var refused error
	for i := 0; refused == nil; i++ {
		_, refused = s.store.Claim(t.Context(), fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Owner: string(make([]byte, 4000))})
	}
	require.ErrorIs(t, refused, lock.ErrFull)
	require.ErrorIs(t, refused, lock.ErrNotApplied)
	require.Equal(t, "full", lock.Class(refused))
	_, _, err := l.Once(t.Context(), "second", nil, s.Order("coffee"))
	require.ErrorIs(t, err, lock.ErrUnavailable)

	require.NoError(t, os.Remove(filler))
	require.Equal(t, "tea", must.Replay(t)(l.Once(t.Context(), "first", nil, s.Order("again"))))
	require.Equal(t, "t", must.Entry(t)(s.store.Get(t.Context(), "held")).Token)
	must.Run(t)(l.Once(t.Context(), "second", nil, s.Order("coffee")))
	require.Equal(t, []string{"tea", "coffee"}, s.Orders(t))
	require.NoError(t, s.store.Check(t.Context()))
}
