package process_test

import (
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
