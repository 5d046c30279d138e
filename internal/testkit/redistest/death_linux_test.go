package redistest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// TestHelper is no test: it is what the tests below run in another process.
func TestHelper(t *testing.T) {
	switch os.Getenv(helperEnv) {
	case helperHang:
		s := redistest.Shared(t)
		_, _ = fmt.Fprintf(os.Stderr, "pid %d in %s\n", pidOf(t, s), s.Dir())
		select {}
	case helperQuick:
		_, _ = fmt.Fprintf(os.Stderr, "pid %d\n", pidOf(t, redistest.Shared(t)))
	case helperBare:
		redistest.Shared(t)
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

// TestKilledTestLeavesNoServer also has to see its servers gone when nothing
// can clean up: after kill -9.
func TestKilledTestLeavesNoServer(t *testing.T) {
	t.Parallel()
	cmd := helper(t, helperHang)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	pid := pidIn(t, line)
	require.True(t, alive(pid))
	t.Cleanup(func() { // the one thing that stays
		require.NoError(t, os.RemoveAll(strings.Fields(line)[3]))
	})

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !runs(pid) }, 20*time.Second, 10*time.Millisecond)
}

func TestSharedEndsWithMain(t *testing.T) {
	t.Parallel()
	out, err := helper(t, helperQuick).CombinedOutput()
	require.NoError(t, err, string(out))
	require.False(t, runs(pidIn(t, string(out))))
}

func TestSharedNeedsMain(t *testing.T) {
	t.Parallel()
	out, err := helper(t, helperBare).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "needs a TestMain that uses redistest.Main")
}

// onDyingThread runs f on a thread that ends right afterwards: that of a
// goroutine that exits without unlocking it.
func onDyingThread(f func()) {
	done := make(chan struct{})
	var try func()
	try = func() {
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() { // the main thread never ends: keep it busy and take another
			go try()
			<-done
			runtime.UnlockOSThread()
			return
		}
		defer close(done)
		f()
	}
	go try()
	<-done
}

// TestStartFromAThreadThatDies: a child that asked to die with its parent dies
// with the thread that forked it.
func TestStartFromAThreadThatDies(t *testing.T) {
	t.Parallel()
	var s *redistest.Server
	onDyingThread(func() { s = redistest.Start(t) })
	time.Sleep(200 * time.Millisecond)
	require.True(t, s.Running())
	require.Equal(t, "PONG", s.Do(t, "PING"))
}

// TestThreadDeathKills is what Start protects from. If it fails,
// TestStartFromAThreadThatDies proves nothing.
func TestThreadDeathKills(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sleep", "10")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	onDyingThread(func() { err = cmd.Start() })
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal())
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
// it, and in a container that can be never.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
