package main_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example"
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
		{name: "two stores", args: []string{"-redis", "redis://a", "-redis", "redis://b"}, want: "quorum, which is not available yet"},
		{name: "two stores in the environment", env: map[string]string{"LATCH_REDIS": "redis://a redis://b"}, want: "quorum, which is not available yet"},
		{name: "abandoned", args: []string{"-abandoned", "maybe"}, want: "use refuse or rerun"},
		{name: "negative work", args: []string{"-work", "-1s"}, want: "-work -1s"},
		{name: "long work", args: []string{"-work", "31s"}, want: "-work 31s"},
		{name: "no budget", args: []string{"-budget", "0s"}, want: "-budget 0s"},
		{name: "short lease", args: []string{"-lease", "999ms"}, want: "twice -budget"},
		{name: "long lease", args: []string{"-lease", "16m"}, want: "at most 15m"},
		{name: "negative cool-down", args: []string{"-cooldown", "-1s"}, want: "-cooldown -1s"},
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
	for _, name := range []string{"addr", "redis", "router", "work", "lease", "budget", "cooldown", "fencing", "abandoned"} {
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
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	err := desk.Run(t.Context(), []string{"-addr", c.url[len("http://"):]}, func(string) string { return "" }, io.Discard, io.Discard)
	require.ErrorContains(t, err, "address already in use")
}
