package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// passing is a hook that does nothing, as those do that trace and measure.
type passing struct{}

func (passing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (passing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds) }
}

// free is a limiter that allows everything.
type free struct{}

func (free) Allow() error       { return nil }
func (free) ReportResult(error) {}

// A caller sends its command itself only over a client that runs no code of its user
// for a command. All others may take their time, and are called where no caller waits.
func TestBareClients(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, tt := range []struct {
		name    string
		options redis.Options
		before  redis.Hook
		after   redis.Hook
		bare    bool
	}{
		{name: "as it comes", bare: true},
		{name: "without timeouts", options: redis.Options{ReadTimeout: -1, WriteTimeout: -2}, bare: true},
		{name: "a hook", before: passing{}},
		{name: "a hook that comes later, and sees nothing", after: passing{}, bare: true},
		{name: "a limiter", options: redis.Options{Limiter: free{}}},
		{name: "OnConnect", options: redis.Options{OnConnect: func(context.Context, *redis.Conn) error { return nil }}},
		{name: "credentials", options: redis.Options{CredentialsProvider: func() (string, string) { return "", "" }}},
		{name: "credentials, by context", options: redis.Options{CredentialsProviderContext: func(context.Context) (string, string, error) { return "", "", nil }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.options.Addr = server.Addr()
			client := redis.NewClient(&tt.options)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			if tt.before != nil {
				client.AddHook(tt.before)
			}
			store := redisstore.New(client)
			if tt.after != nil {
				client.AddHook(tt.after)
			}
			require.False(t, redisstore.Bare(client), "nothing was sent that could show it")
			for range 2 {
				_, err := store.Claim(t.Context(), keyFor(t), lock.Claim{Token: "a", Lease: time.Minute})
				require.NoError(t, err)
				require.Equal(t, tt.bare, redisstore.Bare(client))
			}
			_, err := store.Release(t.Context(), keyFor(t), "a")
			require.NoError(t, err)
		})
	}
}
