package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/handover"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A key goes from one process to another over a real server, with notifications and without.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for name, opts := range map[string][]redisstore.Option{"polling": nil, "notifications": {redisstore.WithNotifications()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handover.Test(t, func(t *testing.T) lock.Store {
				t.Helper()
				store, err := redisstore.Open(t.Context(), url, opts...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, store.Close()) })
				return store
			})
		})
	}
}
