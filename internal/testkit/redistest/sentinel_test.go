package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// Without a double quote, which Valkey 8.1 does not escape when it reads its
// arguments.
const password = "p@ss:w/rd#?%'"

func TestSentinelReplacesAMaster(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t, 2, "--requirepass", password)
	whole, torn := w.Pairs[0], w.Pairs[1]
	client, cluster := whole.Client(t), whole.ClusterClient(t)
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", cluster.Get(t.Context(), "k").Val())
	whole.Replica.AwaitSync(t, whole.Master)
	torn.Forget(t)
	require.NoError(t, torn.Client(t).Set(t.Context(), "k", "v", 0).Err())

	for _, p := range w.Pairs {
		p.FailOverAfter(t, 300*time.Millisecond)
		p.Master.Kill()
	}
	torn.Replica.Cont()
	for _, p := range w.Pairs {
		p.AwaitMaster(t, p.Replica)
	}
	require.Equal(t, []string{"k"}, whole.Replica.Keys(t))
	require.Empty(t, torn.Replica.Keys(t), "acknowledged, and lost")
	for _, get := range []func() string{
		func() string { return client.Get(t.Context(), "k").Val() },
		func() string { return cluster.Get(t.Context(), "k").Val() },
	} {
		require.Eventually(t, func() bool { return get() == "v" }, 20*time.Second, 20*time.Millisecond)
	}
}

func TestSentinelNeedsAPair(t *testing.T) {
	t.Parallel()
	v := testmain.Judge(t, func(tb testing.TB) { redistest.StartSentinel(tb, 0) })
	require.Contains(t, v.WhyFailed, "a pair to watch")
}
