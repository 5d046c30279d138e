package js_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var built string // directory

// build makes the desk once for all tests.
var build = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "desk-"); err != nil {
		return "", err
	}
	path = filepath.Join(built, "desk")
	out, err := exec.Command("go", "build", "-o", path, "github.com/httplatch/httplatch/example/full").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// desk is the order desk in a process.
type desk struct {
	url string
	cmd *exec.Cmd
}

func startDesk(t *testing.T, args ...string) *desk {
	t.Helper()
	path, err := build()
	require.NoError(t, err)
	cmd := exec.Command(path, append(args, "-addr", "127.0.0.1:0", "-budget", "5s")...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	d := &desk{cmd: cmd}
	t.Cleanup(d.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	d.url = strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	return d
}

// kill ends the process by SIGKILL, and returns when it is gone.
func (d *desk) kill() {
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	}
}

// orders returns how many orders of a user there are.
func (d *desk) orders(t *testing.T, user string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/orders?user="+user, nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var all []json.RawMessage
	require.NoError(t, json.Unmarshal(body, &all), string(body))
	return len(all)
}
