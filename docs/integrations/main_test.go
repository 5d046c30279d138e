package integrations_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestMain(m *testing.M) {
	if queue, url, ok := strings.Cut(os.Getenv(workerOver), " "); ok {
		fmt.Fprintln(os.Stderr, beWorker(queue, url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(
		pgtest.Main(redistest.Main(m)),
		// The map of watermill's Deduplicator is cleaned up by a goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message/router/middleware.(*mapExpiringKeyRepository).cleanOutLoop"),
	)
}

// patient is for a machine on which other tests run too.
var patient = lock.WithBudget(5 * time.Second)

func newLocker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, append([]lock.Option{patient}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// overRedis returns a Locker over a server of this test's own, and that server.
func overRedis(t *testing.T, opts ...lock.Option) (*lock.Locker, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithPrefix("shop:"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return newLocker(t, store, opts...), server
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}
