package latchcaddy_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// program returns a command of Caddy with a Caddyfile of its own.
func program(t *testing.T, command, caddyfile string) (cmd *exec.Cmd, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte(caddyfile), 0o600))
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), caddyArguments+"="+command+" --adapter caddyfile --config "+file,
		"XDG_DATA_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	return cmd, file
}

// TestValidate: the command finds a store that cannot be, and says where.
func TestValidate(t *testing.T) {
	cmd, file := program(t, "validate", "{\n\tlatch {\n\t\tstore redis://localhost:99999\n\t}\n}\n")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), file+`:3: latch: store: URL: invalid port \"99999\"`)
}

// TestLogOfAStoreThatIsDown has no line that is not Caddy's: go-redis writes lines of its own.
func TestLogOfAStoreThatIsDown(t *testing.T) {
	s := newShop(t)
	port, err := process.FreePort()
	require.NoError(t, err)
	config := strings.ReplaceAll(guarded(s, "redis://127.0.0.1:1"), "%PORT", fmt.Sprint(port))
	config = strings.Replace(config, "{", "{\n\tadmin off\n\tpersist_config off\n\tauto_https off", 1)
	cmd, _ := program(t, "run", config)
	p, err := process.New("caddy", process.Killed, nil)
	require.NoError(t, err)
	t.Cleanup(p.Remove)
	require.NoError(t, p.Start(cmd, func(int) bool { return listens(port) }))
	g := &gateway{t, port}
	for _, key := range []string{"a", "b", "c"} {
		require.Equal(t, 503, g.order(key, "").status)
	}
	p.Kill()
	require.Contains(t, p.Log(), "the store is not ready")
	for line := range strings.Lines(p.Log()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func listens(port int) bool {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
