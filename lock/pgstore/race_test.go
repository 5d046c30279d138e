package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// race is a store whose writes can be stopped in the middle of a statement.
type race struct {
	store *pgstore.Store
	db    *pgx.Conn // has the lock on which they wait
}

const stopHere = 4711

// newRace returns a store in which writes of rows wait where when says so.
func newRace(t *testing.T, when string) *race {
	t.Helper()
	c := pgtest.Shared(t)
	name := c.Database(t)
	r := &race{store: newStore(t, newPool(t, c.URL(name, "postgres"))), db: pgxtest.Connect(t, c.URL(name, ""))}
	_, err := r.db.Exec(t.Context(), `
		CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END $$;
		CREATE TRIGGER wait_here BEFORE INSERT OR UPDATE ON latch_entries FOR EACH ROW WHEN (`+when+`) EXECUTE FUNCTION wait_here();
		SELECT pg_advisory_lock(4711);`)
	require.NoError(t, err)
	return r
}

const waitsForLock = "wait_event_type = 'Lock'"

// waiting waits until n sessions wait for a lock.
func (r *race) waiting(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() bool { return sessions(t, r.db, waitsForLock) >= n })
}

// goOn lets stopped sessions go on.
func (r *race) goOn(t *testing.T) {
	t.Helper()
	run(t, r.db, "SELECT pg_advisory_unlock($1)", stopHere)
}

type grant struct {
	entry lock.Entry
	err   error
}

func (r *race) claims(t *testing.T, key string, c lock.Claim) <-chan grant {
	t.Helper()
	granted := make(chan grant, 1)
	go func() {
		e, err := r.store.Claim(t.Context(), key, c)
		granted <- grant{e, err}
	}()
	return granted
}

// answerOf makes a call, whose answer no is lock.ErrLost.
func answerOf(call func() (bool, error)) <-chan error {
	answer := make(chan error, 1)
	go func() {
		ok, err := call()
		if err == nil && !ok {
			err = lock.ErrLost
		}
		answer <- err
	}()
	return answer
}

// The fence of a claim that was stopped before it made its row is higher than the fences of all
// claims that were granted, and released, meanwhile.
func TestFencesRiseInTheOrderOfTheGrants(t *testing.T) {
	t.Parallel()
	r := newRace(t, "NEW.owner = 'slow'")
	claims := func(token string) <-chan grant {
		return r.claims(t, "k", lock.Claim{Token: token, Owner: token, Attempt: 1, Lease: time.Minute, Fenced: true})
	}
	slow := claims("slow")
	r.waiting(t, 1)
	quick := claims("quick")
	var before grant
	overtaken := false
	eventually(t, func() bool {
		select {
		case before = <-quick:
			overtaken = true
			return true
		default:
			return sessions(t, r.db, waitsForLock) == 2
		}
	})
	if overtaken {
		require.NoError(t, before.err)
		must.Yes(t)(r.store.Release(t.Context(), "k", lock.Claim{Token: "quick"}))
	}
	r.goOn(t)
	after := <-slow
	require.NoError(t, after.err)
	require.Equal(t, "slow", after.entry.Token)
	if !overtaken {
		before, after = after, <-quick
		require.NoError(t, after.err)
		require.Equal(t, "slow", after.entry.Token, "it is refused by what it has waited for")
		must.Yes(t)(r.store.Release(t.Context(), "k", lock.Claim{Token: "slow"}))
		after = <-claims("quick")
		require.NoError(t, after.err)
		require.Equal(t, "quick", after.entry.Token)
	}
	require.Greater(t, after.entry.Fence, before.entry.Fence)
}

// A Settle that is sent again while the first one is in flight gets the same answer.
func TestSettleThatMeetsItself(t *testing.T) {
	t.Parallel()
	r := newRace(t, "NEW.receipt IS NOT NULL")
	sqlshop.Claim(t, r.store, "k", "t")
	settle := func() (bool, error) {
		return r.store.Settle(t.Context(), "k", lock.Claim{Token: "t"}, []byte("receipt"), time.Minute)
	}
	one, other := answerOf(settle), answerOf(settle)
	r.waiting(t, 2)
	r.goOn(t)
	require.NoError(t, <-one)
	require.NoError(t, <-other)
}

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
			must.Entry(t)(s.Claim(t.Context(), "k", lock.Claim{Token: "theirs", Attempt: 1, Lease: lease, Linger: tt.linger}))
			e := must.Entry(t)(s.Claim(t.Context(), "k", lock.Claim{Token: "mine", Attempt: 2, Lease: time.Minute, Replaces: tt.replaces}))
			require.Equal(t, []any{tt.state, tt.token}, []any{e.State, e.Token})
			require.Positive(t, proxy.Count(sqlproxy.DelayRequest), "it has read")
		})
	}
}
