package faults_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// With an append-only file that is written through, a kill changes nothing.
func TestServerKilledWithAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	newOrdeal(t, server, server.Addr(), lock.ErrUnavailable, func() func() {
		server.Kill()
		return func() { server.Restart(t) }
	}).requirePass(t)
}

// The power fails before the last writes are on disk. The earlier writes are left.
func TestServerLosesTheTailOfItsFile(t *testing.T) {
	t.Parallel()
	for range 5 { // a busy machine may notice the loss before there is a second holder
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // so that the test decides what is lost
		here := process(t, open(t, server.URL()), fencing)
		there := process(t, overClient(t, server.Addr()), fencing)
		kept, lost := acquired(t, here, "user=kept"), claimed(t, here, "user=lost") // the last command
		server.Kill()
		files, err := filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		require.NoError(t, os.Truncate(files[0], info.Size()-10)) // the last command is incomplete
		server.Restart(t)

		refused(t, there, "user=kept")
		lives(t, kept)
		if lost.Context().Err() == nil {
			requireSecondHolder(t, lost, there, "user=lost")
			return
		}
	}
	t.Error("the loss was noticed each time")
}
