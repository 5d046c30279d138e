package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
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

// sockets are the connections of a pool.
type sockets struct {
	mu  sync.Mutex
	all []net.Conn
}

func (s *sockets) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
	return c, err
}

func (s *sockets) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		_ = c.Close()
	}
}

// failover plays an order whose COMMIT waits for a standby that is gone, while something
// happens to its connections. Then the primary dies, and the standby is promoted. It returns the
// violations.
func failover(t *testing.T, as func(*pgstore.Store, *pgxpool.Pool) lock.Store, meanwhile meanwhile) (wrong []string) {
	t.Helper()
	primary := pgtest.Start(t)
	name := primary.Database(t)
	primary.Exec(t, name, "CREATE TABLE orders (name text)")
	newStore(t, newPool(t, primary.URL(name, ""))) // makes the table
	standby := primary.Standby(t)
	primary.Synchronize(t)
	var work sockets
	pool := newPool(t, primary.URL(name, ""), func(cfg *pgxpool.Config) { cfg.ConnConfig.DialFunc = work.dial })
	store := pgstore.New(pool)
	t.Cleanup(store.Close)
	l := lockerOf(t, as(store, pool))
	pool = newPool(t, primary.URL(name, ""))
	other := lockerOf(t, as(newStore(t, pool), pool))
	require.Eventually(t, func() bool { // a busy machine may not serve the first
		_, _, err := l.Once(t.Context(), "warm", nil, order("warm"))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	standby.Kill()

	answers := map[string]bool{}
	answered := func(receipt []byte, err error) {
		if err == nil {
			answers[string(receipt)] = true
		}
	}
	happened := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() {
		defer close(happened)
		meanwhile(t, &work, primary)
	})
	receipt, _, err := l.Once(t.Context(), "k", nil, order("first"))
	t.Logf("first: %s, %v", receipt, err)
	answered(receipt, err)
	<-happened
	receipt, _, err = other.Once(t.Context(), "k", nil, order("repeat"))
	t.Logf("repeat: %s, %v", receipt, err)
	answered(receipt, err)

	primary.Kill()
	standby.Restart(t)
	standby.Promote(t)
	after := lockerOf(t, newStore(t, newPool(t, standby.URL(name, ""))), lock.WithBudget(5*time.Second))
	receipt, _, err = after.Once(t.Context(), "k", nil, order("after"))
	require.NoError(t, err)
	answered(receipt, err)
	rows, err := pgxtest.Connect(t, standby.URL(name, "")).Query(t.Context(), "SELECT name FROM orders WHERE name <> 'warm'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	if len(answers) != 1 || len(names) != 1 || !answers[names[0]] {
		wrong = append(wrong, fmt.Sprintf("answers %v, rows %v", answers, names))
	}
	return wrong
}

// meanwhile happens while a COMMIT waits for the standby of primary.
type meanwhile func(t *testing.T, work *sockets, primary *pgtest.Cluster)

func waits(*testing.T, *sockets, *pgtest.Cluster) {}

func cuts(_ *testing.T, work *sockets, _ *pgtest.Cluster) { work.cut() }

// crashes has the primary recover, by which the COMMIT is there without its standby.
func crashes(t *testing.T, _ *sockets, primary *pgtest.Cluster) {
	t.Helper()
	primary.Restart(t)
}

// operator has an operator end the sessions or the statements that wait, by which the COMMIT is
// there, too. A statement that waits is then answered, with a warning.
func operator(function string) meanwhile {
	return func(t *testing.T, _ *sockets, primary *pgtest.Cluster) {
		t.Helper()
		primary.Exec(t, "postgres", "SELECT "+function+"(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	}
}

// A COMMIT that waits for its standby is not answered as committed before that has it,
// though its caller's budget is over, its connection fails, or the primary recovers from a
// crash and shows its rows to every reader.
func TestCommitThatWaitsForItsStandby(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]meanwhile{
		"the budget ends": waits, "the connection fails": cuts, "the primary crashes": crashes,
		"an operator ends its session": operator("pg_terminate_backend"), "an operator ends its wait": operator("pg_cancel_backend"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, failover(t, func(s *pgstore.Store, _ *pgxpool.Pool) lock.Store { return s }, meanwhile))
		})
	}
}

// The same finds a store that asks by reading, and one whose driver may cancel COMMIT.
func TestCommitThatWaitsForItsStandbyTwins(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "limits the time of a commit")
	t.Parallel()
	for name, as := range map[string]func(*pgstore.Store, *pgxpool.Pool) lock.Store{
		"it reads":                   func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store { return cancels{s, pool, false} },
		"its context cancels COMMIT": func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store { return cancels{s, pool, true} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := failover(t, as, waits)
			require.NotEmpty(t, wrong)
			t.Log(wrong)
		})
	}
}

// cancels is a store that commits by the driver, and replays every receipt that it reads.
type cancels struct {
	*pgstore.Store

	pool  *pgxpool.Pool
	fence bool // it asks by a write, else by reading
}

// Claim answers by a receipt as soon as it can be read.
func (s cancels) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e := lock.Entry{State: lock.Settled, Left: time.Hour}
	err := s.pool.QueryRow(ctx, "SELECT receipt FROM latch_entries WHERE key = $1 AND receipt IS NOT NULL", []byte(key)).Scan(&e.Receipt)
	if err == nil {
		return e, nil
	}
	return s.Store.Claim(ctx, key, c)
}

func (s cancels) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, nil, errors.Join(lock.ErrNotApplied, err)
	}
	return pgstore.WithTx(ctx, tx), &cancelsTx{tx, s, key, token}, nil
}

type cancelsTx struct {
	pgx.Tx

	s          cancels
	key, token string
}

func (t *cancelsTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	_, err := t.Exec(ctx, "UPDATE latch_entries SET receipt = $3, linger = 0, ends_at = clock_timestamp() + $4 * interval '1 microsecond' WHERE key = $1 AND token = $2 AND receipt IS NULL",
		[]byte(t.key), []byte(t.token), receipt, float64(keep.Microseconds()))
	if err != nil {
		return false, errors.Join(lock.ErrNotApplied, err)
	}
	err = t.Commit(ctx)
	return err == nil, err
}

func (t *cancelsTx) Outcome(ctx context.Context) (bool, error) {
	var committed bool
	var err error
	if !t.s.fence {
		err = t.s.pool.QueryRow(ctx, "SELECT receipt IS NOT NULL FROM latch_entries WHERE key = $1 AND token = $2", []byte(t.key), []byte(t.token)).Scan(&committed)
		return committed, err
	}
	err = t.s.pool.QueryRow(ctx, "UPDATE latch_entries SET attempt = CASE WHEN receipt IS NULL THEN -attempt ELSE attempt END WHERE key = $1 AND token = $2 RETURNING receipt IS NOT NULL",
		[]byte(t.key), []byte(t.token)).Scan(&committed)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return committed, err
}

// An operator ends the wait of the store's own statements for the standby. The server answers them with
// a warning, and the standby may not have them: their outcome is unknown.
func TestCallThatWaitsForItsStandby(t *testing.T) {
	t.Parallel()
	for over, open := range map[string]func(t *testing.T, url string) *pgstore.Store{
		"pgx":          func(t *testing.T, url string) *pgstore.Store { t.Helper(); return pgstore.New(newPool(t, url)) },
		"database/sql": func(t *testing.T, url string) *pgstore.Store { t.Helper(); return pgstore.NewSQL(openSQL(t, url)) },
	} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.Start(t)
			name := primary.Database(t)
			store := open(t, primary.URL(name, ""))
			t.Cleanup(store.Close)
			migrate(t, store)
			claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: time.Minute}
			_, err := store.Claim(t.Context(), "k", claim)
			require.NoError(t, err)
			standby := primary.Standby(t)
			primary.Synchronize(t)
			standby.Kill()
			for name, call := range map[string]func(ctx context.Context) error{
				"claim": func(ctx context.Context) error { _, err := store.Claim(ctx, "of another", claim); return err },
				"fenced claim": func(ctx context.Context) error {
					_, err := store.Claim(ctx, "fenced", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: time.Minute, Fenced: true})
					return err
				},
				"receipt": func(ctx context.Context) error {
					_, err := store.Settle(ctx, "k", claim, []byte("receipt"), time.Hour)
					return err
				},
			} {
				done := make(chan error, 1)
				go func() { done <- call(t.Context()) }()
				for len(done) == 0 {
					operator("pg_cancel_backend")(t, nil, primary)
				}
				err := <-done
				require.Error(t, err, name)
				require.NotErrorIs(t, err, lock.ErrNotApplied, name)
			}
			primary.Kill() // it would wait for the standby again
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			_, _, err := l.Once(t.Context(), "warm", nil, order("warm"))
			require.NoError(t, err)
			lose.Store(true)
			receipt, _, err := l.Once(t.Context(), "k", nil, order("first"))
			require.NoError(t, err, "it is committed")
			require.Equal(t, "first", string(receipt))
		})
	}
}
