package pgstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// The sequence of events:
//
//  1. A claim is sent twice, since the first send got no answer. The second is granted.
//  2. The work's COMMIT gets no answer. The fence says that it is not committed, which the caller
//     is answered, and the claim is released.
//  3. The first send of the claim arrives. It must not make the entry anew, with the same token.
//  4. The COMMIT arrives. Directly, its session was ended. PgBouncer does not know yet that its
//     client has gone, and passes it on.
func TestLateCommitFindsALateClaimOfItsToken(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "holds statements back for 3 s")
	t.Parallel()
	for name, pooled := range map[string]bool{"direct": false, "PgBouncer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const late = 3 * time.Second
			addr := pgtest.Shared(t).Addr()
			if pooled {
				addr = pgtest.PgBouncer(t, addr).Addr()
			}
			var commits atomic.Int64
			proxy := sqlproxy.Postgres(t, addr, func(x *sqlproxy.Exchange) sqlproxy.Fault {
				if x.Begins("COMMIT") && commits.Add(1) == 1 {
					return sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: late}
				}
				return sqlproxy.Fault{}
			})
			s := openShop(t, func(db string) string { return proxy.URL(db, "postgres") }, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			})
			claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}
			e, err := s.store.Claim(t.Context(), "k", claim)
			require.NoError(t, err)
			require.Equal(t, []any{lock.Held, "t"}, []any{e.State, e.Token})
			ctx, tx, err := s.store.Begin(t.Context(), "k", "t")
			require.NoError(t, err)
			_, err = order("late")(ctx)
			require.NoError(t, err)
			began := time.Now()
			impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err = tx.Settle(impatient, []byte("receipt"), time.Hour)
			require.ErrorContains(t, err, "COMMIT was not answered")
			committed, err := tx.Outcome(t.Context())
			require.NoError(t, err)
			require.False(t, committed)
			ok, err := s.store.Release(t.Context(), "k", lock.Claim{Token: "t"})
			require.NoError(t, err)
			require.True(t, ok)
			_, err = s.store.Claim(t.Context(), "k", claim) // its first send
			require.ErrorIs(t, err, lock.ErrNotApplied)
			require.Less(t, time.Since(began), late)
			proxy.Wait(t, sqlproxy.DelayRequest, 1)
			time.Sleep(200 * time.Millisecond)
			require.Empty(t, s.orders(t))

			_, replayed, err := s.locker(t).Once(t.Context(), "k", nil, insert("next")) // the key is free
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, []string{"next"}, s.orders(t))
		})
	}
}
