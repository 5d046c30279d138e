package main_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
)

// edited is policies.json with one text replaced by another.
func edited(t *testing.T, from, to string) string {
	t.Helper()
	shipped, err := os.ReadFile("policies.json")
	require.NoError(t, err)
	require.Contains(t, string(shipped), from)
	path := filepath.Join(t.TempDir(), "edited.json")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(shipped), from, to, 1)), 0o600))
	return path
}

// TestPoliciesOfAFile: the shipped file describes what the desk does anyway,
// and a cool-down in it is one of the desk.
func TestPoliciesOfAFile(t *testing.T) {
	t.Parallel()
	file := edited(t, `"key": "user"`, `"key": "user", "cooldown": "1h"`)
	onBothRouters(t, func(t *testing.T, router string) {
		requireReplays(t, startDesk(t, "-router", router, "-work", "0s", "-policies", file))

		c := startDesk(t, "-router", router, "-work", "0s", "-policies", "policies.json")
		for range 2 {
			require.Equal(t, http.StatusCreated, c.order("42").status, "no cool-down")
		}
		requireProblem(t, http.StatusBadRequest, c.order("42", "Idempotency-Key", "k", "X-Work", "forever"))
		require.Equal(t, http.StatusCreated, c.order("42", "Idempotency-Key", "k").status, "a refusal is not kept")
	})
}

func TestPoliciesThatDoNotFit(t *testing.T) {
	t.Parallel()
	tests := []struct{ from, to, want string }{
		{`"key": "user"`, `"key": "usr"`, `line 11, column 12: guard "order-lock", key: the code offers no key function "usr": write user`},
		{`"order-lock"`, `"orders-lock"`, `guard "order-lock" is mounted and not in the policies: add it, or rename "orders-lock" on line 8
line 8, column 3: guard "orders-lock" is not mounted: remove it, or mount it on its route with Get`},
		{`"scope": "user",`, `"lease": "900ms", "scope": "user",`, `line 4, column 14: guard "order-once", lease: a lease of 900ms is too short for a budget of 500ms`},
	}
	for _, tt := range tests {
		file := edited(t, tt.from, tt.to)
		var stdout, stderr bytes.Buffer
		err := desk.Run(t.Context(), []string{"-policies", file, "-addr", "127.0.0.1:0"}, func(string) string { return "" }, &stdout, &stderr)
		require.ErrorContains(t, err, "the policies in "+file+":\n"+tt.want)
		require.Empty(t, stdout.String(), "it does not listen")
	}
	env := map[string]string{"LATCH_POLICIES": "nowhere.json"}
	err := desk.Run(t.Context(), nil, func(name string) string { return env[name] }, io.Discard, io.Discard)
	require.ErrorIs(t, err, os.ErrNotExist)
}
