package send_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// When the last activity leaves, all waiters are notified, also the ones that begin to wait at the
// same moment.
func TestCounterWaits(t *testing.T) {
	t.Parallel()
	var c send.Counter
	for range 2000 {
		var all sync.WaitGroup
		require.True(t, c.Enter())
		for range 2 {
			all.Go(func() { c.Enter(); c.Leave() })
			all.Go(func() {
				if left := c.Wait(context.Background()); left != 0 {
					t.Errorf("%d are left", left)
				}
			})
		}
		c.Leave()
		all.Wait()
	}
	require.Zero(t, c.Count())
}

func TestCounterWaitsForAsLongAsItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c send.Counter
		for range 3 {
			require.True(t, c.Enter())
		}
		c.Close()
		require.False(t, c.Enter())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, 3, c.Wait(ctx))
		for range 3 {
			c.Leave()
		}
		require.Zero(t, c.Wait(t.Context()))
	})
}
