package pgstore_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
	latch "github.com/httplatch/httplatch/middleware"
)

// ways open a shop for each way to the database.
var ways = map[string]func(t *testing.T) *shop{
	"pgx": func(t *testing.T) *shop {
		t.Helper()
		return openShop(t, direct(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 }) // which the work has: renewals need none
	},
	"database/sql": openSQLShop,
	"PgBouncer":    func(t *testing.T) *shop { t.Helper(); return openShop(t, bounced(t, pgtest.Shared(t).Addr())) },
	"PgBouncer, database/sql": func(t *testing.T) *shop {
		t.Helper()
		return openSQLShopThrough(t, bounced(t, pgtest.Shared(t).Addr()))
	},
}

var isolations = []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}

// Work that has its snapshot is not in the way of what the store writes meanwhile: renewals, and
// the notes of effects that are no rows. It commits with its receipt at each isolation.
func TestWorkThatHasItsSnapshot(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	client := &http.Client{Transport: latch.Upstream(nil)}
	t.Cleanup(client.CloseIdleConnections)
	for way, open := range ways {
		parallel.Run(t, way, func(t *testing.T) {
			s := open(t)
			l := s.locker(t)
			var made []string
			for _, isolation := range isolations {
				for what, meanwhile := range map[string]func(ctx context.Context) error{
					"a renewal":   s.renew,
					"lock.Commit": lock.Commit,
					"an upstream call": func(ctx context.Context) error {
						r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, upstream.URL, http.NoBody))(t)
						answer, err := client.Do(r)
						if err != nil {
							return err
						}
						_, err = io.Copy(io.Discard, answer.Body)
						_ = answer.Body.Close()
						return err
					},
				} {
					name := isolation + ", " + what
					made = append(made, name)
					h := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						for _, statement := range []string{"SET TRANSACTION ISOLATION LEVEL " + isolation, "SELECT count(*) FROM orders"} {
							require.NoError(t, exec(r.Context(), statement))
						}
						require.NoError(t, meanwhile(r.Context()))
						handle(name)(w, r)
					}))
					for i := range 2 {
						r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
						r.Header.Set("Idempotency-Key", strconv.Itoa(len(made)))
						w := httptest.NewRecorder()
						h.ServeHTTP(w, r)
						if !assert.Equal(t, http.StatusCreated, w.Code, "%s: %s", name, w.Body) {
							break
						}
						require.Equal(t, i > 0, w.Header().Get("Idempotent-Replayed") == "true")
					}
				}
			}
			require.ElementsMatch(t, made, s.orders(t))
			entries := 0
			for e, err := range s.store.List(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, lock.Settled, e.State)
				entries++
			}
			require.Len(t, made, entries, "notes are no entries")
		})
	}
}

// renew renews the one claim that is held.
func (s *shop) renew(ctx context.Context) error {
	for e, err := range s.store.List(ctx) {
		if err == nil && e.State != lock.Held {
			continue
		}
		if err == nil {
			_, err = s.store.Renew(ctx, e.Key, lock.Claim{Token: e.Token, Lease: time.Hour})
		}
		return err
	}
	return lock.ErrLost
}

// newRecordRace returns a race in which writes wait where when says so, with a record that is
// claimed for a.
func newRecordRace(t *testing.T, when string, linger time.Duration) (r *race, a lock.Claim) {
	t.Helper()
	r = newRace(t, when)
	a = lock.Claim{Token: "a", Attempt: 1, Lease: 2 * time.Second, Linger: linger}
	require.Equal(t, lock.Held, must.Entry(t)(r.store.Claim(t.Context(), record, a)).State)
	return r, a
}

const record = "once:k"

// A claim that finds an ended lease waits for the renewal that is in progress, and sees it, also
// behind a PgBouncer whose sessions have another isolation.
func TestClaimThatMeetsARenewal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claim   lock.Claim
		bounces bool
	}{
		"of a lease that is forgotten":  {},
		"of a lease that is remembered": {claim: lock.Claim{Linger: time.Hour, Replaces: "a"}},
		"behind PgBouncer":              {bounces: true},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			c := tt.claim
			r, a := newRecordRace(t, "NEW.token = ''", c.Linger)
			if tt.bounces {
				db := r.db.Config().Database
				pgtest.Shared(t).Exec(t, db, "ALTER DATABASE "+db+" SET default_transaction_isolation = 'repeatable read'")
				r.store = newStore(t, newPool(t, bounced(t, pgtest.Shared(t).Addr())(db)))
			}
			a.Lease = time.Minute
			renewed := answerOf(func() (bool, error) { return r.store.Renew(t.Context(), record, a) })
			r.waiting(t, 1)
			eventually(t, func() bool { return one[bool](t, r.db, "SELECT ends_at < clock_timestamp() FROM latch_entries") })
			c.Token, c.Attempt, c.Lease = "b", 2, time.Minute
			answer := r.claims(t, record, c)
			r.waiting(t, 2)
			r.goOn(t)
			require.NoError(t, <-renewed)
			g := <-answer
			require.NoError(t, g.err)
			require.Equal(t, []any{lock.Held, "a"}, []any{g.entry.State, g.entry.Token}, "granted past a renewal that was confirmed")
		})
	}
}

// A renewal waits for the takeover that is in progress, and is refused.
func TestRenewalThatMeetsATakeover(t *testing.T) {
	t.Parallel()
	r, a := newRecordRace(t, "NEW.token = 'b'", time.Hour)
	answer := r.claims(t, record, lock.Claim{Token: "b", Attempt: 2, Lease: time.Minute, Replaces: "a", ReplacesHeld: true})
	r.waiting(t, 1)
	renewed := answerOf(func() (bool, error) { return r.store.Renew(t.Context(), record, a) })
	r.waiting(t, 2)
	r.goOn(t)
	g := <-answer
	require.NoError(t, g.err)
	require.Equal(t, []any{lock.Held, "b"}, []any{g.entry.State, g.entry.Token})
	require.ErrorIs(t, <-renewed, lock.ErrLost)
}

// After a COMMIT without an answer and without effect, a release frees the key, whatever was noted.
func TestReleaseOfWorkWithANote(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	migrate(t, newStore(t, newPool(t, c.URL(db, "postgres"))))
	store := pgstore.New(newPool(t, losesCommits(t, c.Addr()).URL(db, "postgres")))
	t.Cleanup(store.Close)
	tx := unanswered(t, store, func(ctx context.Context) {
		must.Yes(t)(store.Renew(ctx, record, lock.Claim{Token: "t", Lease: time.Hour, Linger: time.Hour}))
	})
	must.No(t)(tx.Outcome(t.Context()))
	e := must.Entry(t)(store.Get(t.Context(), record))
	require.Equal(t, []any{lock.Held, "t"}, []any{e.State, e.Token})
	require.Greater(t, e.Left, 50*time.Minute)
	must.Yes(t)(store.Release(t.Context(), record, lock.Claim{Token: "t"}))
	sqlshop.Claim(t, store, record, "next")
}

// A note is a row of the table, and no entry: lists have the claim alone. A claim that has ended leaves
// the zero Entry, although its row is still there.
func TestNoteIsNoEntry(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	s := newStore(t, newPool(t, c.URL(db, "postgres")))
	claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Hour}
	must.Entry(t)(s.Claim(t.Context(), record, claim))
	must.Yes(t)(s.Renew(t.Context(), record, claim))
	row := pgxtest.Connect(t, c.URL(db, ""))
	require.Equal(t, 2, one[int](t, row, "SELECT count(*) FROM latch_entries"))

	page, next, err := s.Page(t.Context(), "", 10, nil)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, page, 1)
	require.Equal(t, record, page[0].Key)

	run(t, row, "UPDATE latch_entries SET ends_at = 'epoch'")
	require.Equal(t, lock.Entry{}, must.Entry(t)(s.Get(t.Context(), record)))
}
