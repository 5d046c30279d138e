package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/redisstore"
)

// refusalsVariable is the environment variable that makes this program one whose Redis is away.
const refusalsVariable = "LATCH_TEST_REFUSALS"

// refuseClaims is a program that opens its store as how says, and has three requests.
func refuseClaims(how string) {
	ctx := context.Background()
	var store *redisstore.Store
	switch how {
	case "Open":
		store, _ = redisstore.Open(ctx, "redis://127.0.0.1:1", redisstore.WithoutCheck())
	case "Open, with a log":
		store, _ = redisstore.Open(ctx, "redis://127.0.0.1:1", redisstore.WithoutCheck())
		redis.SetLogger(stderrLog{})
		_, _ = redisstore.Open(ctx, "redis://127.0.0.1:1", redisstore.WithoutCheck())
		_ = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}).Ping(ctx)
	case "New":
		store = redisstore.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}))
	}
	for i := range 3 {
		_, _ = store.Claim(ctx, fmt.Sprint("lock:", i), claim("a"))
	}
}

type stderrLog struct{}

func (stderrLog) Printf(_ context.Context, format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// TestOpenSilencesTheClient: a program whose Redis is away logs its own lines only. go-redis has one
// log for the process, so each case is a process.
func TestOpenSilencesTheClient(t *testing.T) {
	t.Parallel()
	for how, logs := range map[string]bool{"Open": false, "Open, with a log": true, "New": false} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), refusalsVariable+"="+how)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err)
			if !logs {
				require.Empty(t, string(out))
				return
			}
			require.Contains(t, string(out), "failed to dial")
		})
	}
}
