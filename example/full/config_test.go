package main_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{name: "unknown flag", args: []string{"-nope"}, want: "-nope"},
		{name: "argument", args: []string{"serve"}, want: `unexpected argument "serve"`},
		{name: "router", args: []string{"-router", "gin"}, want: "use chi or stdlib"},
		{name: "two stores", args: []string{"-redis", "redis://a", "-redis", "redis://b"}, want: "-redis was given 2 times: a quorum needs an odd number"},
		{name: "two stores in the environment", env: map[string]string{"LATCH_REDIS": "redis://a redis://b"}, want: "given 2 times"},
		{name: "one store twice", env: map[string]string{"LATCH_REDIS": "redis://a redis://b redis://a"}, want: "-redis number 3 was given before"},
		{
			name: "fences of a quorum", args: []string{"-fencing"}, env: map[string]string{"LATCH_REDIS": "redis://a redis://b redis://c"},
			want: "-fencing needs a single -redis",
		},
		{
			name: "taking over on a quorum", args: []string{"-abandoned", "rerun"}, env: map[string]string{"LATCH_REDIS": "redis://a redis://b redis://c"},
			want: "-abandoned rerun needs a single -redis",
		},
		{name: "both stores", args: []string{"-redis", "redis://a"}, env: map[string]string{"LATCH_POSTGRES": "postgres://a"}, want: "-postgres and -redis exclude each other"},
		{name: "two databases", args: []string{"-sqlite", "a.db", "-mysql", "desk@/desk"}, want: "-mysql excludes -postgres, -sqlite and -redis"},
		{name: "a file and a server", args: []string{"-sqlite", "a.db"}, env: map[string]string{"LATCH_REDIS": "redis://a"}, want: "-sqlite excludes -postgres and -redis"},
		{name: "no transactions", args: []string{"-transaction=false"}, want: "-transaction=false needs -postgres"},
		{name: "a worker without jobs", args: []string{"-sqlite", "a.db", "-worker"}, want: "-worker needs -postgres"},
		{name: "abandoned", args: []string{"-abandoned", "maybe"}, want: "use refuse or rerun"},
		{name: "negative work", args: []string{"-work", "-1s"}, want: "-work -1s"},
		{name: "long work", args: []string{"-work", "31s"}, want: "-work 31s"},
		{name: "no budget", args: []string{"-budget", "0s"}, want: "-budget 0s"},
		{name: "short lease", args: []string{"-lease", "999ms"}, want: "twice -budget"},
		{name: "long lease", args: []string{"-lease", "16m"}, want: "at most 15m"},
		{name: "negative cool-down", args: []string{"-cooldown", "-1s"}, want: "-cooldown -1s"},
		{name: "cool-down in addition to a file", args: []string{"-cooldown", "1s", "-policies", "policies.json"}, want: `write "cooldown" into the file`},
		{name: "abandoned in addition to a file", args: []string{"-abandoned", "rerun", "-policies", "policies.json"}, want: `write "rerun_abandoned" into the file`},
		{name: "bad value in the environment", env: map[string]string{"LATCH_WORK": "long"}, want: `invalid value "long" for LATCH_WORK`},
		{name: "several", args: []string{"serve"}, env: map[string]string{"LATCH_ROUTER": "gin"}, want: "use chi or stdlib"},
	}
	for _, tt := range tests {
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

func TestHelp(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	err := desk.Run(t.Context(), []string{"-h"}, func(string) string { return "" }, io.Discard, &stderr)
	require.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range []string{"addr", "redis", "router", "work", "lease", "budget", "cooldown", "fencing", "abandoned", "policies", "postgres", "mysql", "sqlite", "transaction"} {
		require.Contains(t, stderr.String(), "  -"+name)
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

func TestStoreThatIsNotThere(t *testing.T) {
	t.Parallel()
	err := desk.Run(t.Context(), []string{"-redis", "redis://127.0.0.1:1"}, func(string) string { return "" }, io.Discard, io.Discard)
	require.ErrorContains(t, err, "opening the store: ")
	err = desk.Run(t.Context(), []string{"-redis", "http://127.0.0.1"}, func(string) string { return "" }, io.Discard, io.Discard)
	require.ErrorContains(t, err, "opening the store: ")
	err = desk.Run(t.Context(), []string{"-postgres", "postgres://127.0.0.1:1/desk"}, func(string) string { return "" }, io.Discard, io.Discard)
	require.ErrorContains(t, err, "opening the store: ")
	err = desk.Run(t.Context(), []string{"-sqlite", t.TempDir() + "/none/desk.db"}, func(string) string { return "" }, io.Discard, io.Discard)
	require.ErrorContains(t, err, "make the directory")
}

// TestQuorumThatIsNotThere: the error names the number of the node.
func TestQuorumThatIsNotThere(t *testing.T) {
	t.Parallel()
	up := redistest.Start(t).URL()
	closed := func(n int) string { return fmt.Sprintf("redis://127.0.0.1:%d", n) }
	tests := []struct {
		name string
		urls []string
		want []string
	}{
		{"a majority is down", []string{closed(1), up, closed(2)}, []string{"1 of 3 nodes are well, 2 have to be", "stores[0]: redisstore: dial", "stores[2]: redisstore: dial"}},
		{"no URL", []string{up, "redis://", "http://127.0.0.1"}, []string{"-redis number 3", "http"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-addr", "127.0.0.1:0"}
			for _, url := range tt.urls {
				args = append(args, "-redis", url)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // then it has been served
			defer cancel()
			err := desk.Run(ctx, args, func(string) string { return "" }, io.Discard, io.Discard)
			require.ErrorContains(t, err, "opening the store")
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	err := desk.Run(t.Context(), []string{"-addr", c.url[len("http://"):]}, func(string) string { return "" }, io.Discard, io.Discard)
	require.ErrorContains(t, err, "address already in use")
}
