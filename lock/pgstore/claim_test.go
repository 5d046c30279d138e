package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock"
)

// A claim meets a lease, which is over when the claim reads it: the key is taken then. A claim
// that is not granted has seen an entry that is in its way.
func TestClaimTakesAKeyThatBecomesFree(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	for name, tt := range map[string]struct {
		linger   time.Duration
		replaces string
		state    lock.State
		token    string
	}{
		"free":                        {0, "", lock.Held, "mine"},
		"taken over":                  {time.Minute, "theirs", lock.Held, "mine"},
		"abandoned":                   {time.Minute, "", lock.Abandoned, "theirs"},
		"abandoned by a third":        {time.Minute, "another", lock.Abandoned, "theirs"},
		"free, for those who replace": {0, "theirs", lock.Free, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			proxy := sqlproxy.Postgres(t, c.Addr(), func(x *sqlproxy.Exchange) sqlproxy.Fault {
				if x.Contains("SELECT CASE WHEN e.receipt") {
					return sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: 2 * lease}
				}
				return sqlproxy.Fault{}
			})
			s := newStore(t, newPool(t, proxy.URL(c.Database(t), "postgres"), func(cfg *pgxpool.Config) {
				cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			}))
			claim := func(c lock.Claim) lock.Entry {
				e, err := s.Claim(t.Context(), "k", c)
				require.NoError(t, err)
				return e
			}
			require.Equal(t, lock.Held, claim(lock.Claim{Token: "theirs", Attempt: 1, Lease: lease, Linger: tt.linger}).State)
			e := claim(lock.Claim{Token: "mine", Attempt: 2, Lease: time.Minute, Replaces: tt.replaces})
			require.Equal(t, []any{tt.state, tt.token}, []any{e.State, e.Token})
			require.Positive(t, proxy.Count(sqlproxy.DelayRequest), "it has read")
		})
	}
}
