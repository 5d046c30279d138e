package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllow(t *testing.T) {
	t.Parallel()
	onBothRouters(t, func(t *testing.T, router string) {
		c := startDesk(t, "-router", router)
		for path, allow := range map[string]string{
			"/orders":       "GET, HEAD, POST",
			"/orders/7/pay": "POST",
			"/locks":        "GET, HEAD, DELETE",
			"/healthz":      "GET, HEAD",
			"/console":      "GET, HEAD, POST, DELETE",
		} {
			got := c.do("PUT", path, "")
			requireProblem(t, 405, got)
			require.Equal(t, allow, got.header.Get("Allow"))
		}
	})
}
