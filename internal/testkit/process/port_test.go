package process_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// TestFreePortRefuses: no connection is taken at a free port, or who waits for a program to listen takes it for the
// program. Processes start meanwhile, because one has a copy of every open listener before it runs.
func TestFreePortRefuses(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var starts sync.WaitGroup
	defer starts.Wait()
	defer stop()
	for range 4 {
		starts.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	for range 200 {
		port, err := process.FreePort()
		require.NoError(t, err)
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		require.Error(t, err, "something listens at the free port %d", port)
	}
}
