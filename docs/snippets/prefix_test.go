package snippets_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestTwoServicesOnOneRedis: what the page says of prefixes, of different ones and
// of one that two services share.
func TestTwoServicesOnOneRedis(t *testing.T) {
	t.Parallel()
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	for name, tt := range map[string]struct {
		shop, billing []redisstore.Option
		want          string // from billing, for what shop has answered
	}{
		"prefixes of their own": {
			[]redisstore.Option{redisstore.WithPrefix("shop:")}, []redisstore.Option{redisstore.WithPrefix("billing:")}, "billing",
		},
		"the default of both": {nil, nil, "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			locker := func(opts []redisstore.Option) *lock.Locker {
				store, err := redisstore.Open(t.Context(), srv.URL(), opts...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, store.Close()) })
				return newLocker(t, store, lock.WithBudget(5*time.Second))
			}
			service := func(locker *lock.Locker, text string) http.Handler {
				once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
				return chain(says(text), auth.Require, once)
			}
			shop, billing := locker(tt.shop), locker(tt.billing)
			require.Equal(t, "shop", served(service(shop, "shop"), "POST", "/orders", "k").Body.String())
			require.Equal(t, tt.want, served(service(billing, "billing"), "POST", "/orders", "k").Body.String())

			held, err := shop.Acquire(t.Context(), lock.Key("user", "42"))
			require.NoError(t, err)
			other, err := billing.Acquire(t.Context(), lock.Key("user", "42"))
			if tt.want == "shop" {
				require.ErrorIs(t, err, lock.ErrHeld)
			} else {
				require.NoError(t, err)
				require.NoError(t, other.Release(t.Context()))
			}
			require.NoError(t, held.Release(t.Context()))
		})
	}
}
