package pgstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// lockerOf returns one of a server that may die before it is closed.
func lockerOf(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, append([]lock.Option{lock.WithTransaction(), lock.WithLogger(sqlshop.Quiet), lock.WithBudget(500 * time.Millisecond)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// An operator ends the wait of the store's own statements for the standby. The server answers them with
// a warning, and the standby may not have them: their outcome is unknown.
func TestCallThatWaitsForItsStandby(t *testing.T) {
	t.Parallel()
	for over, open := range map[string]func(t *testing.T, url string) *pgstore.Store{
		"pgx":          func(t *testing.T, url string) *pgstore.Store { t.Helper(); return pgstore.New(newPool(t, url)) },
		"database/sql": func(t *testing.T, url string) *pgstore.Store { t.Helper(); return pgstore.NewSQL(openSQL(t, url)) },
	} {
		parallel.Run(t, over, func(t *testing.T) {
			primary := pgtest.Start(t)
			name := primary.Database(t)
			store := open(t, primary.URL(name, ""))
			t.Cleanup(store.Close)
			migrate(t, store)
			claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: time.Minute}
			must.Entry(t)(store.Claim(t.Context(), "k", claim))
			must.Entry(t)(store.Claim(t.Context(), "work", claim))
			_, tx, err := store.Begin(t.Context(), "work", "t")
			require.NoError(t, err)
			standby := primary.Standby(t)
			primary.Synchronize(t)
			standby.Kill()
			t.Cleanup(func() {
				primary.Kill() // it would wait for the standby again
				_ = tx.Rollback(context.Background())
			})
			for name, call := range map[string]func(ctx context.Context) error{
				"claim": func(ctx context.Context) error { _, err := store.Claim(ctx, "of another", claim); return err },
				"fenced claim": func(ctx context.Context) error {
					return must.Err(store.Claim(ctx, "fenced", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: time.Minute, Fenced: true}))
				},
				"receipt": func(ctx context.Context) error {
					return must.Err(store.Settle(ctx, "k", claim, []byte("receipt"), time.Hour))
				},
				"receipt of work": func(ctx context.Context) error {
					return must.Err(tx.Settle(ctx, []byte("receipt"), time.Hour))
				},
			} {
				done := make(chan error, 1)
				go func() { done <- call(t.Context()) }()
				for len(done) == 0 {
					primary.Exec(t, "postgres", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
				}
				err := <-done
				require.Error(t, err, name)
				require.NotErrorIs(t, err, lock.ErrNotApplied, name)
			}
		})
	}
}

// A standby that lags is not believed, whichever of two hosts is asked.
func TestOutcomeIsAskedOfThePrimary(t *testing.T) {
	t.Parallel()
	for name, validate := range map[string]pgconn.ValidateConnectFunc{
		"any host":             nil,
		"a pooler hides which": func(context.Context, *pgconn.PgConn) error { return nil },
	} {
		parallel.Run(t, name, func(t *testing.T) {
			primary := pgtest.Start(t)
			name := primary.Database(t)
			primary.Exec(t, name, "CREATE TABLE orders (name text)")
			newStore(t, newPool(t, primary.URL(name, "")))
			standby := primary.Standby(t, "recovery_min_apply_delay=10min")
			db := pgxtest.Connect(t, primary.URL(name, ""))

			var away, lose atomic.Bool
			proxy := sqlproxy.Postgres(t, primary.Addr(), func(x *sqlproxy.Exchange) sqlproxy.Fault {
				if !x.Begins("COMMIT") || !lose.CompareAndSwap(true, false) {
					return sqlproxy.Fault{}
				}
				away.Store(true) // the primary refuses new connections for a while, and has ended the store's
				_, err := db.Exec(context.WithoutCancel(t.Context()), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'")
				if err != nil {
					t.Error(err)
				}
				time.AfterFunc(300*time.Millisecond, func() { away.Store(false) })
				return sqlproxy.Fault{Action: sqlproxy.LoseReplyAndCut}
			})
			url := strings.Replace(proxy.URL(name, "postgres"), proxy.Addr(), proxy.Addr()+","+standby.Addr(), 1)
			pool := newPool(t, url, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.ValidateConnect = validate
				cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr == proxy.Addr() && away.Load() {
						return nil, errors.New("no more connections")
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			store := pgstore.New(pool)
			t.Cleanup(store.Close)
			l := lockerOf(t, store, lock.WithBudget(5*time.Second), lock.WithLease(time.Minute))
			must.Run(t)(l.Once(t.Context(), "warm", nil, order("warm")))
			lose.Store(true)
			require.Equal(t, "first", must.Run(t)(l.Once(t.Context(), "k", nil, order("first"))), "it is committed")
		})
	}
}
