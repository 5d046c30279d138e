package pgtest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

const (
	helperEnv    = "PGTEST_TEST_HELPER"
	helperHang   = "hang"
	helperPaused = "paused"
	helperPanic  = "panic"
	helperQuick  = "quick"
)

// TestHelper is no test: the tests below run it in another process.
func TestHelper(t *testing.T) {
	mode := os.Getenv(helperEnv)
	if mode == "" {
		t.Skip("only as a helper process")
	}
	c := pgtest.Shared(t)
	var pid, backend int
	conn := pgxtest.Connect(t, c.URL("postgres", ""))
	var dir string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir))
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	require.NoError(t, err)
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	if mode == helperPaused {
		c.Pause()
	}
	_, _ = fmt.Fprintf(os.Stderr, "pids %d %d in %s at %s\n", pid, backend, filepath.Dir(dir), c.URL("postgres", ""))
	switch mode {
	case helperQuick:
	case helperPanic: // no clean-up runs
		go panic("as the timeout of go test does")
		select {}
	default:
		select {}
	}
}

func helper(t *testing.T, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), helperEnv+"="+mode)
	return cmd
}

// TestNothingIsLeft: no process and no directory, when the tests ended as they
// should, were killed by kill -9, also while the server stood still, or by a
// panic in another goroutine, which the timeout of go test is.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	pgtest.Shared(t) // or there is no server either
	for _, mode := range []string{helperQuick, helperHang, helperPaused, helperPanic} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cmd := helper(t, mode)
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			out := bufio.NewReader(stderr)
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			words := strings.Fields(line) // pids PID PID in DIR at URL
			require.Len(t, words, 7, line)

			switch mode {
			case helperHang, helperPaused:
				require.True(t, runs(t, words[1]))
				require.DirExists(t, words[4])
				require.NoError(t, cmd.Process.Kill())
				require.Error(t, cmd.Wait())
			case helperPanic:
				require.Error(t, cmd.Wait())
			case helperQuick:
				require.NoError(t, cmd.Wait())
				require.NoDirExists(t, words[4], "at once")
			}
			require.Eventually(t, func() bool { return !runs(t, words[1]) && !runs(t, words[2]) }, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool {
				_, err := os.Stat(words[4])
				return os.IsNotExist(err)
			}, patience, 10*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = pgx.Connect(ctx, words[6])
			require.ErrorContains(t, err, "refused")
		})
	}
}

// runs is not true of zombies: an orphan may wait for its new parent to reap it,
// and in a container that can be never.
func runs(t *testing.T, pid string) bool {
	t.Helper()
	_, err := strconv.Atoi(pid)
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", pid).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
