package redistest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// TestHelper is no test: the tests below run it in another process.
func TestHelper(t *testing.T) {
	switch os.Getenv(helperEnv) {
	case helperHang:
		s := redistest.Shared(t)
		_, _ = fmt.Fprintf(os.Stderr, "pid %d in %s\n", pidOf(t, s), s.Dir())
		select {}
	case helperQuick:
		_, _ = fmt.Fprintf(os.Stderr, "pid %d\n", pidOf(t, redistest.Shared(t)))
	default:
		t.Skip("only as a helper process")
	}
}

func helper(t *testing.T, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), helperEnv+"="+mode)
	return cmd
}

// TestKilledTestLeavesNothing also when nothing can clean up: after kill -9.
func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := helper(t, helperHang)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	pid := pidIn(t, line)
	require.True(t, alive(pid))
	dir := strings.Fields(line)[3]
	require.DirExists(t, dir)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && !runs(pid)
	}, 20*time.Second, 10*time.Millisecond)
}

func TestSharedEndsWithMain(t *testing.T) {
	t.Parallel()
	out, err := helper(t, helperQuick).CombinedOutput()
	require.NoError(t, err, string(out))
	require.False(t, runs(pidIn(t, string(out))))
}

func pidIn(t *testing.T, out string) int {
	t.Helper()
	_, after, ok := strings.Cut(out, "pid ")
	require.True(t, ok, out)
	pid, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return pid
}

// runs is alive without zombies: an orphan may wait for its new parent to reap
// it, and in a container this may never happen.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
