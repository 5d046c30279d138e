package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Stores with different prefixes are different stores, also if one prefix begins
// like the other.
func TestPrefixesDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	prefixes := []string{"latch:", "shop:", "shop:eu:", "shop"}
	for _, prefix := range prefixes {
		s := open(t, srv.URL(), redisstore.WithPrefix(prefix), redisstore.WithNotifications())
		for _, key := range []string{"user=42", "once:k"} {
			take(t, s, key, claim("of "+prefix))
		}
		ok, err := s.Settle(t.Context(), "once:k", lock.Claim{Token: "of " + prefix}, []byte(prefix), time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
	}
	for _, prefix := range prefixes {
		s := open(t, srv.URL(), redisstore.WithPrefix(prefix), redisstore.WithNotifications())
		all := listed(t, s)
		require.Len(t, all, 2)
		require.Equal(t, "of "+prefix, all["user=42"].Token)
		require.Equal(t, []byte(prefix), all["once:k"].Receipt)
		require.Len(t, pagedAll(t, s), 2)
		release(t, s, "user=42", "of "+prefix)
		for _, key := range []string{"user=42", "once:k"} {
			ok, err := s.Forget(t.Context(), key, "of another")
			require.NoError(t, err)
			require.False(t, ok)
		}
	}
	require.Len(t, srv.Keys(t), len(prefixes), "each has released its own")
}
