package memstore_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Receipts that come at once do not exceed the share of their scope together: for as long as they
// were kept, each new request of this user would be refused.
func TestReceiptsAtOnceLeaveRoomForClaims(t *testing.T) {
	t.Parallel()
	const callers, size = 8, 200 << 10
	claim := lock.Claim{Token: "a", Scope: "user=42", Lease: time.Minute}
	receipt := make([]byte, size)
	for round := range 600 {
		s := memstore.New(memstore.WithLimits(1000, 16*size), memstore.WithScopeShare(0.25)) // three of them fit
		for i := range callers {
			put(t, s, strconv.Itoa(i), claim)
		}
		var begin, done sync.WaitGroup
		begin.Add(1)
		for i := range callers {
			done.Go(func() {
				begin.Wait()
				_, _ = s.Settle(t.Context(), strconv.Itoa(i), claim, receipt, time.Hour)
			})
		}
		begin.Done()
		done.Wait()
		e, err := s.Claim(t.Context(), "another", claim)
		require.NoError(t, err, "round %d", round)
		require.Equal(t, lock.Held, e.State)
	}
}
