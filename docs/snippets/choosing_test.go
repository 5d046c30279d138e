package snippets_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/quorum"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func withQuorum(ctx context.Context, urls []string, use func(*lock.Locker)) error {
	var stores []lock.Store
	for _, url := range urls { // redis://a:6379, redis://b:6379, redis://c:6379
		s, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"), redisstore.WithoutCheck())
		if err != nil {
			return err
		}
		defer s.Close()
		stores = append(stores, s)
	}
	locker := lock.New(quorum.New(stores))

	use(locker)
	return locker.Close(ctx)
}

func TestQuorumOfThePage(t *testing.T) {
	t.Parallel()
	var urls []string
	var servers []*redistest.Server
	for range 3 {
		srv := redistest.Start(t)
		servers, urls = append(servers, srv), append(urls, srv.URL())
	}
	require.NoError(t, withQuorum(t.Context(), urls, func(locker *lock.Locker) {
		holding := 0
		require.Eventually(t, func() bool { // a busy machine may not serve the first claim
			return locker.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error {
				for _, srv := range servers {
					holding += len(srv.Keys(t))
				}
				return nil
			}) == nil || holding > 0
		}, 30*time.Second, 10*time.Millisecond)
		require.GreaterOrEqual(t, holding, 2, "a majority")
	}))
}
