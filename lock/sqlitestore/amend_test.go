package sqlitestore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
)

// The job, its ticket and the 202 are committed together, and so are the worker's row and the final
// answer, also if the receipt of the 202 is in the file of claims.
func TestJobs(t *testing.T) {
	t.Parallel()
	sqlshop.TestJobs(t, func(t *testing.T) *sqlshop.Shop { t.Helper(); return openShop(t).Shop })
}

// Of an amend in work that is in progress and one of another process, one succeeds, wherever
// the receipt is.
func TestAmendBesideWorkThatAmends(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ transaction, commits bool }{
		"in the database, committed":             {true, true},
		"in the database, rolled back":           {true, false},
		"in the file of the claims, committed":   {false, true},
		"in the file of the claims, rolled back": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t)
			other := open(t, s.path)
			if tt.transaction {
				_, tx, _ := s.begin(t, "k")
				must.Yes(t)(tx.Settle(t.Context(), []byte("accepted"), time.Hour))
			} else {
				sqlshop.Claim(t, s.store, "k", "token of k")
				must.Yes(t)(s.store.Settle(t.Context(), "k", lock.Claim{Token: "token of k"}, []byte("accepted"), time.Hour))
			}
			before := must.Entry(t)(s.store.Get(t.Context(), "k"))

			ctx, work, _ := s.begin(t, "job")
			must.Yes(t)(s.store.Amend(ctx, "k", "token of k", []byte("accepted"), []byte("by work")))
			require.Eventually(t, func() bool { // a machine that is busy may not let it begin to wait
				impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				ok, err := other.Amend(impatient, "k", "token of k", []byte("accepted"), []byte("by another"))
				assert.Error(t, err)
				assert.False(t, ok)
				return errors.Is(err, lock.ErrNotApplied)
			}, 20*time.Second, time.Millisecond, "it waits for the work")
			if tt.commits {
				must.Yes(t)(work.Settle(t.Context(), nil, time.Hour))
			} else {
				require.NoError(t, work.Rollback(t.Context()))
			}
			ok, err := other.Amend(t.Context(), "k", "token of k", []byte("accepted"), []byte("by another"))
			require.NoError(t, err)
			require.Equal(t, !tt.commits, ok)

			want := map[bool]string{true: "by work", false: "by another"}[tt.commits]
			for _, store := range []lock.Store{s.store, other} {
				e := must.Entry(t)(store.Get(t.Context(), "k"))
				require.Equal(t, want, string(e.Receipt))
				require.LessOrEqual(t, e.Left, before.Left)
				require.Greater(t, e.Left, before.Left-time.Minute)
				e.Receipt, e.Left = before.Receipt, before.Left
				require.Equal(t, before, e)
			}
			n := 0
			for e, err := range other.List(t.Context()) {
				require.NoError(t, err)
				if e.Key == "k" {
					n++
					require.Equal(t, want, string(e.Receipt))
				}
			}
			require.Equal(t, 1, n)
		})
	}
}
