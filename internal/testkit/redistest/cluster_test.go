package redistest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, nil, "--maxmemory-policy", "noeviction")
	require.NoError(t, c.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, []string{"k"}, c.Keys(t))
	require.Equal(t, "redis-cluster://"+c.Nodes[0].Addr(), c.URL())
}

func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, nil)
	client := c.Client(t)
	var keys []string
	for i := range 100 {
		key := "key:" + strconv.Itoa(i)
		keys = append(keys, key)
		require.NoError(t, client.Set(t.Context(), key, "v", 0).Err())
		require.Equal(t, []string{key}, c.Owner(t, key).Keys(t, key))
	}
	slices.Sort(keys)
	require.Equal(t, keys, c.Keys(t))
	for _, node := range c.Nodes {
		require.NotEmpty(t, node.Keys(t), "every node has a share")
	}
}

func TestClusterAnnouncesGivenPorts(t *testing.T) {
	t.Parallel()
	var asked, announced []string
	c := redistest.StartCluster(t, 2, func(node int, addr string) int {
		port, err := process.FreePort()
		require.NoError(t, err)
		require.Len(t, asked, node)
		asked = append(asked, addr)
		announced = append(announced, fmt.Sprintf("127.0.0.1:%d", port))
		return port
	})
	require.Equal(t, []string{c.Nodes[0].Addr(), c.Nodes[1].Addr()}, asked)
	require.Equal(t, announced, c.Addrs())
	for _, node := range c.Nodes {
		var seen []string
		shards, err := node.Client(t).ClusterShards(t.Context()).Result()
		require.NoError(t, err)
		for _, s := range shards {
			seen = append(seen, fmt.Sprintf("%s:%d", s.Nodes[0].IP, s.Nodes[0].Port))
		}
		require.ElementsMatch(t, announced, seen)
	}
}

func TestClusterNodeRestarts(t *testing.T) {
	t.Parallel()
	port, err := process.FreePort()
	require.NoError(t, err)
	c := redistest.StartCluster(t, 1, func(int, string) int { return port })
	c.Nodes[0].Do(t, "SET", "k", "v")
	c.Nodes[0].Restart(t)
	require.Eventually(t, func() bool {
		return strings.Contains(fmt.Sprint(c.Nodes[0].Do(t, "CLUSTER", "INFO")), "cluster_state:ok")
	}, 20*time.Second, 20*time.Millisecond)
	require.Empty(t, c.Keys(t))
	require.Contains(t, c.Nodes[0].Do(t, "CLUSTER", "NODES"), fmt.Sprintf(" 127.0.0.1:%d@", port))
}

func TestClusterReplacesAMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, nil, "--requirepass", password)
	c.AddReplicas(t)
	require.NoError(t, c.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, []string{"k"}, c.Keys(t), "those of replicas are not counted")
	master, replica := c.Owner(t, "k"), (*redistest.Server)(nil)
	for i, s := range c.Nodes {
		if s == master {
			replica = c.Replicas[i]
		}
	}
	replica.AwaitSync(t, master)

	c.FailOverAfter(t, time.Second)
	master.Kill()
	c.AwaitOwner(t, "k", replica)
	require.Same(t, replica, c.Owner(t, "k"))
	require.Equal(t, []string{"k"}, c.Keys(t))
	require.Equal(t, "v", c.Client(t).Get(t.Context(), "k").Val())
}
