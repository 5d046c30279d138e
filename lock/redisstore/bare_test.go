package redisstore_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// passing is a hook that does nothing, like hooks that trace and measure.
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
			p := respproxy.Start(t, server.Addr())
			tt.options.Addr = p.Addr()
			client := redis.NewClient(&tt.options)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			if tt.before != nil {
				client.AddHook(tt.before)
			}
			l := lock.New(redisstore.New(client), lock.WithLease(4*patience), lock.WithMaxHold(4*patience), lock.WithBudget(patience))
			if tt.after != nil {
				client.AddHook(tt.after)
			}
			require.False(t, sendsItself(t, l, p), "nothing was sent that could show it")
			for range 2 {
				require.Equal(t, tt.bare, sendsItself(t, l, p))
			}
			require.NoError(t, l.Close(timeout(t, patience)))
		})
	}
}

// sendsItself reports whether a caller of l waits for the server in the client, and not
// for another goroutine that does.
func sendsItself(t *testing.T, l *lock.Locker, p *respproxy.Proxy) bool {
	t.Helper()
	held := p.On(respproxy.Match{Name: "set", Key: nameOf(t), Count: 1}, respproxy.Hold())
	caller, done := make(chan string, 1), make(chan error, 1)
	go func() {
		title, _, _ := strings.Cut(stacks(false), " [")
		caller <- title + " "
		done <- l.Do(t.Context(), keyFor(t), func(context.Context) error { return nil })
	}()
	title := <-caller
	held.Wait(t, 1)
	var itself bool
	for stack := range strings.SplitSeq(stacks(true), "\n\n") {
		if strings.HasPrefix(stack, title) {
			require.Contains(t, stack, "redisstore.(*Store).Claim")
			itself = strings.Contains(stack, "go-redis")
		}
	}
	require.Equal(t, 1, held.Deliver(t))
	require.NoError(t, <-done)
	return itself
}

// stacks is the stack of this goroutine, or of all.
func stacks(all bool) string {
	buf := make([]byte, 16<<20)
	return string(buf[:runtime.Stack(buf, all)])
}
