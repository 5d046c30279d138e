//go:build unix

package main_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// TestStormOnTopologies: a desk takes its orders on each kind of servers that its flags name.
func TestStormOnTopologies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a Cluster, Sentinels and a quorum")
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (args []string){
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
			args := append(start(t), "-budget", "10s") // 50 orders at once on every server, all on one machine
			requireOnce(t, []*process{startProcess(t, args...), startProcess(t, args...)})
		})
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
