package main_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	quorum := map[string]string{"LATCH_REDIS": "redis://a redis://b redis://c"}
	for _, tt := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{name: "unknown flag", args: []string{"-nope"}, want: "-nope"},
		{name: "argument", args: []string{"serve"}, want: `unexpected argument "serve"`},
		{name: "router", args: []string{"-router", "gin"}, want: "use chi or stdlib"},
		{name: "two stores", args: []string{"-redis", "redis://a", "-redis", "redis://b"}, want: "-redis was given 2 times: a quorum needs an odd number"},
		{name: "one store twice", env: map[string]string{"LATCH_REDIS": "redis://a redis://b redis://a"}, want: "-redis number 3 was given before"},
		{name: "fences of a quorum", args: []string{"-fencing"}, env: quorum, want: "-fencing needs a single -redis"},
		{name: "taking over on a quorum", args: []string{"-abandoned", "rerun"}, env: quorum, want: "-abandoned rerun needs a single -redis"},
		{name: "both stores", args: []string{"-redis", "redis://a"}, env: map[string]string{"LATCH_POSTGRES": "postgres://a"}, want: "-postgres and -redis exclude each other"},
		{name: "two databases", args: []string{"-sqlite", "a.db", "-mysql", "desk@/desk"}, want: "-mysql excludes -postgres, -sqlite and -redis"},
		{name: "a file and a server", args: []string{"-sqlite", "a.db"}, env: map[string]string{"LATCH_REDIS": "redis://a"}, want: "-sqlite excludes -postgres and -redis"},
		{name: "no transactions", args: []string{"-transaction=false"}, want: "-transaction=false needs -postgres"},
		{name: "a worker without jobs", args: []string{"-sqlite", "a.db", "-worker"}, want: "-worker needs -postgres"},
		{name: "abandoned", args: []string{"-abandoned", "maybe"}, want: "use refuse or rerun"},
		{name: "long work", args: []string{"-work", "31s"}, want: "-work 31s"},
		{name: "no budget", args: []string{"-budget", "0s"}, want: "-budget 0s"},
		{name: "short lease", args: []string{"-lease", "999ms"}, want: "twice -budget"},
		{name: "long lease", args: []string{"-lease", "16m"}, want: "at most 15m"},
		{name: "negative cool-down", args: []string{"-cooldown", "-1s"}, want: "-cooldown -1s"},
		{name: "cool-down in addition to a file", args: []string{"-cooldown", "1s", "-policies", "policies.json"}, want: `write "cooldown" into the file`},
		{name: "abandoned in addition to a file", args: []string{"-abandoned", "rerun", "-policies", "policies.json"}, want: `write "rerun_abandoned" into the file`},
		{name: "bad value in the environment", env: map[string]string{"LATCH_WORK": "long"}, want: `invalid value "long" for LATCH_WORK`},
		{name: "several", args: []string{"serve"}, env: map[string]string{"LATCH_ROUTER": "gin"}, want: "use chi or stdlib"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			err := desk.Run(t.Context(), tt.args, func(name string) string { return tt.env[name] }, &stdout, &stderr)
			require.EqualError(t, err, "wrong usage")
			require.Contains(t, stderr.String(), tt.want)
			require.Empty(t, stdout.String())
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"LATCH_ADDR": "127.0.0.1:0", "LATCH_ROUTER": "stdlib", "LATCH_COOLDOWN": "1h", "LATCH_WORK": "30s", "LATCH_FENCING": "true",
		"LATCH_ABANDONED": "refuse",
	}
	c := startWith(t, func(ctx context.Context, stdout, stderr io.Writer) error {
		return desk.Run(ctx, []string{"-work", "0s"}, func(name string) string { return env[name] }, stdout, stderr)
	})
	require.Equal(t, 201, c.order("42").status, "a flag overrules the environment")
	require.Equal(t, 429, c.order("42").status)
	require.Positive(t, c.orders("42")[0].Fence)
}

// TestDeskThatCannotStart: the error says why, and of a quorum it names the number of the node.
func TestDeskThatCannotStart(t *testing.T) {
	t.Parallel()
	up := redistest.Start(t).URL()
	for name, tt := range map[string]struct{ args, want []string }{
		"Redis":           {[]string{"-redis", "redis://127.0.0.1:1"}, []string{"opening the store: "}},
		"no URL of Redis": {[]string{"-redis", "http://127.0.0.1"}, []string{"opening the store: "}},
		"PostgreSQL":      {[]string{"-postgres", "postgres://127.0.0.1:1/desk"}, []string{"opening the store: "}},
		"SQLite":          {[]string{"-sqlite", t.TempDir() + "/none/desk.db"}, []string{"make the directory"}},
		"a majority": {
			[]string{"-redis", "redis://127.0.0.1:1", "-redis", up, "-redis", "redis://127.0.0.1:2"},
			[]string{"opening the store", "1 of 3 nodes are well, 2 have to be", "stores[0]: redisstore: dial", "stores[2]: redisstore: dial"},
		},
		"no URL of a node": {[]string{"-redis", up, "-redis", "redis://", "-redis", "http://127.0.0.1"}, []string{"opening the store", "-redis number 3"}},
		"its address":      {[]string{"-addr", startDesk(t).url[len("http://"):]}, []string{"address already in use"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // then it has been served
			defer cancel()
			err := desk.Run(ctx, append([]string{"-addr", "127.0.0.1:0"}, tt.args...), func(string) string { return "" }, io.Discard, io.Discard)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

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
	for _, tt := range []struct{ from, to, want string }{
		{`"key": "user"`, `"key": "usr"`, `line 11, column 12: guard "order-lock", key: the code offers no key function "usr": write user`},
		{`"order-lock"`, `"orders-lock"`, `guard "order-lock" is mounted and not in the policies: add it, or rename "orders-lock" on line 8
line 8, column 3: guard "orders-lock" is not mounted: remove it, or mount it on its route with Get`},
		{`"scope": "user",`, `"lease": "900ms", "scope": "user",`, `line 4, column 14: guard "order-once", lease: a lease of 900ms is too short for a budget of 500ms`},
	} {
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
