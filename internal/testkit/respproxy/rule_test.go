package respproxy_test

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	c := bare(t, p.Addr())
	ctx := t.Context()
	const script = "return redis.call('EXISTS', KEYS[1])"
	require.NoError(t, redis.NewScript(script).Load(ctx, c).Err())
	commands := map[string]func() error{
		"set a":    func() error { return c.Set(ctx, "match:a", "v", 0).Err() },
		"set b":    func() error { return c.Set(ctx, "match:b", "match:a", 0).Err() },
		"exists a": func() error { return c.Exists(ctx, "match:a").Err() },
		"eval a":   func() error { return c.Eval(ctx, script, []string{"match:a"}, "match:b").Err() },
		"evalsha a": func() error {
			return c.EvalSha(ctx, redis.NewScript(script).Hash(), []string{"match:a"}, "match:b").Err()
		},
		"ping": func() error { return c.Ping(ctx).Err() },
	}
	for name, tt := range map[string]struct {
		match respproxy.Match
		hits  []string
	}{
		"everything":      {respproxy.Match{}, []string{"set a", "set b", "exists a", "eval a", "evalsha a", "ping"}},
		"name":            {respproxy.Match{Name: "SeT"}, []string{"set a", "set b"}},
		"names":           {respproxy.Match{Name: "eval|EVALSHA"}, []string{"eval a", "evalsha a"}},
		"key":             {respproxy.Match{Key: "match:a"}, []string{"set a", "exists a", "eval a", "evalsha a"}},
		"part of a key":   {respproxy.Match{Key: ":b"}, []string{"set b"}},
		"name and key":    {respproxy.Match{Name: "set", Key: "match:b"}, []string{"set b"}},
		"neither":         {respproxy.Match{Name: "get"}, nil},
		"part of a name":  {respproxy.Match{Name: "se"}, nil},
		"func":            {respproxy.Match{Func: func(args [][]byte) bool { return len(args) == 1 }}, []string{"ping"}},
		"func and others": {respproxy.Match{Name: "set", Func: func(args [][]byte) bool { return string(args[2]) == "v" }}, []string{"set a"}},
	} {
		rule := p.On(tt.match, respproxy.ReplyError("hit"))
		var hits []string
		for command, run := range commands {
			if err := run(); err != nil {
				require.EqualError(t, err, "hit", name)
				hits = append(hits, command)
			}
		}
		require.ElementsMatch(t, tt.hits, hits, name)
		require.Equal(t, len(tt.hits), rule.Hits(), name)
		rule.Remove()
		require.NoError(t, c.Ping(ctx).Err(), name)
	}
}

func TestSkipAndCount(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		skip, count int
		want        string
	}{
		{0, 0, "xxxxxx"},
		{0, 1, "x....."},
		{0, 3, "xxx..."},
		{2, 0, "..xxxx"},
		{2, 1, "..x..."},
		{9, 1, "......"},
	} {
		_, p := started(t)
		c := bare(t, p.Addr())
		p.On(respproxy.Match{Name: "echo", Skip: tt.skip, Count: tt.count}, respproxy.ReplyError("x"))
		got := ""
		for range tt.want {
			if c.Echo(t.Context(), "").Err() != nil {
				got += "x"
			} else {
				got += "."
			}
		}
		require.Equal(t, tt.want, got)
	}
}

func TestOldestRuleActs(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	c := bare(t, p.Addr())
	first := p.On(respproxy.Match{Name: "echo", Skip: 1, Count: 1}, respproxy.ReplyError("first"))
	second := p.On(respproxy.Match{Name: "echo"}, respproxy.ReplyError("second"))
	for _, want := range []string{"second", "first", "second"} {
		require.EqualError(t, c.Echo(t.Context(), "").Err(), want)
	}
	require.Equal(t, 1, first.Hits())
	require.Equal(t, 2, second.Hits())
	p.Clear()
	require.NoError(t, c.Echo(t.Context(), "").Err())
}

func TestWait(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	c := bare(t, p.Addr())
	rule := p.On(respproxy.Match{Name: "echo"}, respproxy.Action{})
	rule.Wait(t, 0)
	rule.WaitLanded(t)
	go func() {
		for i := range 10 {
			c.Echo(t.Context(), strconv.Itoa(i))
		}
	}()
	rule.Wait(t, 10)
	rule.WaitLanded(t)
	require.Equal(t, 10, rule.Hits())
}
