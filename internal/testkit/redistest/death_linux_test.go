package redistest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// TestKilledTestLeavesNothing also when nothing can clean up: after kill -9.
func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	const child = "REDISTEST_HELPER" // the test starts itself again, as a process to kill
	s := redistest.Shared(t)
	if os.Getenv(child) != "" {
		info, err := s.Client(t).InfoMap(t.Context(), "server").Result()
		require.NoError(t, err)
		_, _ = fmt.Fprintln(os.Stderr, info["Server"]["process_id"], s.Dir())
		select {}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), child+"=1")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	pid, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	require.True(t, runs(pid), line)
	require.DirExists(t, dir)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && !runs(pid)
	}, 20*time.Second, 10*time.Millisecond)
}

// runs is not true of zombies: an orphan may wait for its new parent to reap it, and in a container
// this may never happen.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
