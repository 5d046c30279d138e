package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestStartReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--requirepass", "secret")
	master.Do(t, "SET", "before", "v")
	replica := redistest.StartReplica(t, master, "--requirepass", "secret")
	require.Equal(t, []string{"before"}, replica.Keys(t))
	require.ErrorContains(t, replica.Client(t).Set(t.Context(), "k", "v", 0).Err(), "READONLY")

	master.Do(t, "SET", "after", "v")
	replica.AwaitSync(t, master)
	require.Equal(t, []string{"after", "before"}, replica.Keys(t))

	// Writes after the cut never reach a stopped replica.
	replica.Stop()
	require.EqualValues(t, 1, master.Do(t, "CLIENT", "KILL", "TYPE", "replica"))
	master.Do(t, "SET", "lost", "v")
	master.Kill()
	replica.Cont()
	replica.Promote(t)
	require.NoError(t, replica.Client(t).Set(t.Context(), "new", "v", 0).Err())
	require.Equal(t, []string{"after", "before", "new"}, replica.Keys(t))
}

func TestReplicaRestartsAsOne(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	replica.Kill()
	master.Do(t, "SET", "k", "v")
	replica.Restart(t)
	replica.AwaitSync(t, master)
	require.Equal(t, []string{"k"}, replica.Keys(t))
}
