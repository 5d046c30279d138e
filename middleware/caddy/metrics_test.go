package latchcaddy_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMetrics are on Caddy's endpoint, and count on over a reload.
func TestMetrics(t *testing.T) {
	s := newShop(t)
	config := with(s, "metrics /metrics\nlatch {\nidempotent orders {\nscope global\nkey idempotency-key\n}\n}")
	g := start(t, config)
	require.Equal(t, 201, g.order("a", "").status)
	g.reload(config + "\n")
	for range 2 {
		require.Equal(t, 201, g.order("a", "").status)
	}
	metrics := g.look("/metrics").body
	for outcome, n := range map[string]string{"executed": "1", "replayed": "2"} {
		line := regexp.MustCompile(`(?m)^idempotency_\w+_total\{.*outcome="` + outcome + `".*policy="orders".*\} ` + n + `$`)
		require.Regexp(t, line, metrics)
	}
	require.Contains(t, metrics, "lock_inflight")
}
