//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var build = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "desk-"); err != nil {
		return "", err
	}
	path = filepath.Join(built, "desk")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

type process struct {
	*client
	cmd    *exec.Cmd
	stderr *bytes.Buffer // to be read when it has ended
}

// processLives is how long a desk may live: many times what any test of it
// takes. A test that waits for one that hangs fails then, by its name, and long
// before the time of the whole package is over.
const processLives = 3 * time.Minute

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "builds and starts the desk")
	path := must.Get(build())(t)
	cmd := exec.Command(path, append(args, "-addr", "127.0.0.1:0")...)
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	stdout := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	tooLong := time.AfterFunc(processLives, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		tooLong.Stop()
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	line := must.Get(bufio.NewReader(stdout).ReadString('\n'))(t)
	url, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "listening on ")
	require.True(t, ok, line)
	return &process{newClient(t, url), cmd, stderr}
}

// kill ends the process by SIGKILL, and returns when it is gone.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	require.Error(t, p.cmd.Wait())
}

func requireStorm(t *testing.T, replies []reply) {
	t.Helper()
	placed := 0
	for _, got := range replies {
		if got.status == http.StatusCreated {
			placed++
			continue
		}
		requireProblem(t, http.StatusConflict, got)
		require.Equal(t, "1", got.header.Get("Retry-After"))
	}
	require.Equal(t, 1, placed)
}

// TestStorm is the double submission, fifty-fold, against the real program: alone, and two of them over each kind of
// servers that its flags name.
func TestStorm(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a Cluster, Sentinels and a quorum")
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (args []string){
		"memory": nil,
		"redis":  func(t *testing.T) []string { t.Helper(); return []string{"-redis", redistest.Start(t).URL()} },
		"quorum": func(t *testing.T) []string { t.Helper(); return startQuorum(t, 5) },
		"cluster": func(t *testing.T) []string {
			t.Helper()
			cluster := redistest.StartCluster(t, 3, nil)
			cluster.AddReplicas(t)
			return []string{"-redis", cluster.URL()}
		},
		"sentinel": func(t *testing.T) []string {
			t.Helper()
			return []string{"-redis", redistest.StartSentinel(t, 1).Pairs[0].URL()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if start == nil {
				requireOnce(t, []*process{startProcess(t)})
				return
			}
			args := append(start(t), "-budget", "10s") // 50 orders at once on every server, all on one machine
			requireOnce(t, []*process{startProcess(t, args...), startProcess(t, append(args, "-router", "stdlib")...)})
		})
	}
}

// requireOnce sends storms to desks that share a store, in turn to each.
func requireOnce(t *testing.T, desks []*process) {
	t.Helper()
	orders := func(user string) (all []record) {
		for _, d := range desks {
			all = append(all, d.orders(user)...)
		}
		return all
	}
	storm := func(user func(i int) string, work string) []reply {
		var all sync.WaitGroup
		parts := make([][]reply, len(desks))
		for p, d := range desks {
			all.Go(func() {
				n := 50 / len(desks)
				parts[p] = d.storm(n, func(i int) string { return user(p*n + i) }, "X-Work", work)
			})
		}
		all.Wait()
		return slices.Concat(parts...)
	}

	// All have been answered long before the one that is placed.
	requireStorm(t, storm(func(int) string { return "42" }, "2500ms"))
	require.Len(t, orders("42"), 1)
	for _, d := range desks {
		require.Equal(t, http.StatusCreated, d.order("42").status, "after the answer the user orders again at once")
	}
	for i, got := range storm(func(i int) string { return fmt.Sprintf("user-%d", i) }, "300ms") {
		require.Equal(t, http.StatusCreated, got.status, got.body)
		require.Len(t, orders(fmt.Sprintf("user-%d", i)), 1)
	}
}

// TestSignals: the program ends as TestShutdown requires, and exits with 0.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := startProcess(t)
		answer := d.inBackground("X-Work", "1s")
		require.NoError(t, d.cmd.Process.Signal(signal))
		require.Equal(t, http.StatusCreated, (<-answer).status)
		require.NoError(t, d.cmd.Wait(), signal)
		require.NotContains(t, d.stderr.String(), "level=ERROR")
	}
}

// TestSecondSignalKills: an operator need not wait for the orders to end.
func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	d := startProcess(t)
	answer := d.inBackground("X-Work", "30s")
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return d.do("GET", "/readyz", "").status == 503 }, 30*time.Second, time.Millisecond)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, d.cmd.Wait())
	require.Zero(t, (<-answer).status)
}

func TestExitCodes(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "builds and starts the desk")
	t.Parallel()
	path := must.Get(build())(t)
	for _, tt := range []struct {
		arg  []string
		code int
	}{
		{[]string{"-h"}, 0},
		{[]string{"-abandoned", "maybe"}, 2},
		{[]string{"-redis", "redis://127.0.0.1:1"}, 1},
	} {
		cmd := exec.Command(path, tt.arg...)
		out, err := cmd.CombinedOutput()
		require.Equal(t, tt.code, cmd.ProcessState.ExitCode(), "%v: %v: %s", tt.arg, err, out)
		require.NotEmpty(t, out)
	}
}

func startQuorum(t *testing.T, n int) (args []string) {
	t.Helper()
	for range n {
		args = append(args, "-redis", redistest.Start(t).URL())
	}
	return args
}

// TestQuorumKeepsNoAnswers: what asks for a replay is refused before anything is
// done, with what to do; a cool-down is kept.
func TestQuorumKeepsNoAnswers(t *testing.T) {
	t.Parallel()
	d := startProcess(t, append(startQuorum(t, 3), "-budget", "10s", "-cooldown", "1h")...)
	got := d.order("42", "Idempotency-Key", "k")
	requireProblem(t, http.StatusNotImplemented, got)
	require.Contains(t, got.body, "Start it with one -redis")
	require.Empty(t, d.orders("42"))

	require.Equal(t, http.StatusCreated, d.order("42").status)
	requireProblem(t, http.StatusTooManyRequests, d.order("42"))
	requireProblem(t, http.StatusNotImplemented, d.pay(d.orders("42")[0].ID))

	requireProblem(t, http.StatusNotImplemented, d.tryForm(nil, "guard", "idempotent", "user", "43"))
	require.Contains(t, d.do("GET", "/", "").body, `id="double-ours" data-guard="lock"`, "the page plays the guard that there is")
	requireProblem(t, http.StatusNotImplemented, d.tryForm(nil, "guard", "both", "user", "43"))
	require.Less(t, d.tryForm(nil, "guard", "lock", "user", "43").status, 400)
}
