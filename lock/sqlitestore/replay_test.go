package sqlitestore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
)

// A receipt in the database is replayed while another process has locked the file of claims, or has removed
// it, and as it is in the database at that moment. Any other claim waits for the file.
func TestReplayWaitsForNoOtherCall(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	l := sqlshop.Locker(t, s.store)
	must.Run(t)(l.Once(t.Context(), "k", nil, s.Order("tea")))
	key := storeKey(t, s.store)
	run(t, connect(t, s.path+"-latch"), "BEGIN IMMEDIATE")
	claim := lock.Claim{Token: "again", Attempt: 1, Lease: time.Minute}
	lingering := claim
	lingering.Linger = time.Minute // of a guard without transactions
	waits := func(key string, c lock.Claim) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, must.Err(s.store.Claim(ctx, key, c)), lock.ErrNotApplied)
	}
	for _, tt := range []struct{ name, change, receipt string }{
		{"as it was left", "SELECT 1", "tea"},
		{"amended", "UPDATE latch_entries SET receipt = CAST('coffee' AS BLOB)", "coffee"},
		{"in a table that is not there", "ALTER TABLE latch_entries RENAME TO other", ""},
		{"in a table that is there again", "ALTER TABLE other RENAME TO latch_entries", "coffee"},
		{"over", "UPDATE latch_entries SET ends_at = over_at - 3600000000 * 48, over_at = over_at - 3600000000 * 48", ""},
		{"living", "UPDATE latch_entries SET ends_at = over_at + 3600000000 * 48, over_at = over_at + 3600000000 * 48", "coffee"},
		{"freed", "DELETE FROM latch_entries", ""},
	} {
		s.exec(t, tt.change)
		if tt.receipt == "" {
			waits(key, claim)
			continue
		}
		require.Equal(t, tt.receipt, string(must.Entry(t)(s.store.Claim(t.Context(), key, claim)).Receipt), tt.name)
		waits(key+"2", claim)
		waits(key, lingering)
	}
}

// A replay goes on after the file of claims was lost.
func TestReplayWithoutClaims(t *testing.T) {
	t.Parallel()
	for name, lose := range loseClaims {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t)
			l := sqlshop.Locker(t, s.store)
			must.Run(t)(l.Once(t.Context(), "k", nil, s.Order("tea")))
			lose(t, s.path+"-latch")
			for range 2 {
				require.Equal(t, "tea", must.Replay(t)(l.Once(t.Context(), "k", nil, s.Order("coffee"))))
			}
			key := storeKey(t, s.store)
			must.Yes(t)(s.store.Forget(t.Context(), key, must.Entry(t)(s.store.Get(t.Context(), key)).Token))
			must.Run(t)(l.Once(t.Context(), "k", nil, s.Order("coffee")))
			require.Equal(t, []string{"tea", "coffee"}, s.Orders(t))
		})
	}
}
