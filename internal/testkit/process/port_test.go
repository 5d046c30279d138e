package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

func TestFreePort(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 200 {
		port, err := process.FreePort()
		require.NoError(t, err)
		require.False(t, seen[port])
		require.Greater(t, port, 6379)
		require.Less(t, port, 32768, "the ephemeral range of Linux begins there")
		seen[port] = true
	}
}

// While a proxy of one test process was down, another process started its server there, and the
// clients of the first wrote to that server. Without reservations, 500 draws from 10,000 ports
// avoid the other process's 200 in one run of 24,000.
func TestFreePortOfAnotherProcess(t *testing.T) {
	t.Parallel()
	const child = "HTTPLATCH_PORTS"
	if os.Getenv(child) != "" {
		for range 200 {
			port, err := process.FreePort()
			require.NoError(t, err)
			_, err = fmt.Fprintln(os.Stdout, port)
			require.NoError(t, err)
		}
		runtime.GC() // closes a reservation that nothing refers to
		_, err := fmt.Fprintln(os.Stdout, "all")
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, os.Stdin) // holds them until the parent is done
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	taken, lines := map[int]bool{}, bufio.NewScanner(stdout)
	for lines.Scan() && lines.Text() != "all" {
		port, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		taken[port] = true
	}
	require.Len(t, taken, 200)
	for range 500 {
		port, err := process.FreePort()
		require.NoError(t, err)
		require.False(t, taken[port], "port %d is another process's", port)
	}
	require.NoError(t, stdin.Close())
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, cmd.Wait())
}
