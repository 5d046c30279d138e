package respproxy_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// The replies on the right are the replies of Redis 6.2.
func TestAnswersOfRedis62(t *testing.T) {
	t.Parallel()
	const (
		write  = "return redis.call('SET', KEYS[1], '')"
		caught = "return {'SET', redis.pcall('SET', KEYS[1], '').err or 'none'}"
		// The SHA-1 of write.
		call = "ERR Error running script (call to f_a5bf2e9062794ec979e7cd8098aaefde8f369d79): @user_script:1: "
	)
	for name, tt := range map[string]struct {
		args []string
		do   [][]any
		set  string // SET with NX and GET
		eval string
		pcal string
	}{
		"healthy": {
			set: "ERR syntax error",
		},
		"full": {
			args: []string{"--maxmemory", "1"},
			set:  "OOM command not allowed when used memory > 'maxmemory'.",
			eval: "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
			pcal: "@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.\r\n",
		},
		"replica": {
			do:   [][]any{{"REPLICAOF", "127.0.0.1", "1"}},
			set:  "READONLY You can't write against a read only replica.",
			eval: "@user_script: 1: -READONLY You can't write against a read only replica.",
			pcal: "@user_script: 12: -READONLY You can't write against a read only replica.\r\n",
		},
		"not permitted": {
			do:   [][]any{{"ACL", "SETUSER", "default", "-set"}},
			set:  "NOPERM",
			eval: "@user_script: 1: The user executing the script can't run this command or subcommand",
			pcal: "@user_script: 12: The user executing the script can't run this command or subcommand\r\n",
		},
		"other type": {
			do: [][]any{{"RPUSH", "k", "x"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, tt.args...)
			p := respproxy.StartRedis62(t, srv.Addr())
			c := client(t, redis.Options{Addr: p.Addr()})
			for _, args := range tt.do {
				srv.Do(t, args...)
			}
			info, err := c.Info(t.Context(), "server").Result()
			require.NoError(t, err)
			require.Contains(t, info, "\r\nredis_version:6.2.14\r\n")
			require.NotContains(t, info, "valkey_version")

			err = c.Do(t.Context(), "SET", "k", "v", "NX", "GET", "PX", 1000).Err()
			if tt.set != "" {
				require.ErrorContains(t, err, tt.set)
			}
			err = c.Do(t.Context(), "EVAL", write, 1, "k").Err()
			if tt.eval == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, call+tt.eval)
			}
			err = c.Do(t.Context(), "EVAL", "return redis.call('INCR', KEYS[1])", 1, "k").Err()
			if name == "healthy" || name == "other type" {
				require.ErrorContains(t, err, "): @user_script:1: ERR value is not an integer", "what a command itself says stays as it is")
			}
			all, err := c.Do(t.Context(), "EVAL", caught, 1, "k").Slice()
			require.NoError(t, err)
			if tt.pcal == "" {
				tt.pcal = "none"
			}
			require.Equal(t, []any{"SET", tt.pcal}, all)
			n, err := c.Do(t.Context(), "EVAL", "return {1, 'OOM it is not'}", 0).Slice()
			require.NoError(t, err)
			require.Equal(t, []any{int64(1), "OOM it is not"}, n)
			require.ErrorContains(t, c.Do(t.Context(), "FCALL", "f", 0).Err(), "unknown command")
		})
	}
}
