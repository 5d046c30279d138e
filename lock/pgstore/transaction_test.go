package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
	latch "github.com/httplatch/httplatch/middleware"
)

// shop is a database with orders, which nothing keeps from being doubled.
type shop struct {
	*sqlshop.Shop

	pool  *pgxpool.Pool
	store *pgstore.Store
	db    *pgx.Conn // not through a proxy
}

func openShop(tb testing.TB, through func(db string) string, configure ...func(*pgxpool.Config)) *shop {
	tb.Helper()
	c := pgtest.Shared(tb)
	name := c.Database(tb)
	s := &shop{db: pgxtest.Connect(tb, c.URL(name, ""))}
	run(tb, s.db, "CREATE TABLE orders (name text)")
	migrate(tb, newStore(tb, newPool(tb, c.URL(name, "postgres"))))
	s.pool = newPool(tb, through(name), configure...)
	s.store = pgstore.New(s.pool)
	tb.Cleanup(s.store.Close)
	s.Shop = &sqlshop.Shop{Store: s.store, DB: openSQL(tb, c.URL(name, "")), Tx: sqlTx, Exec: exec, Insert: "INSERT INTO orders VALUES ($1)", InTx: s.sessionsInTransaction}
	return s
}

func direct(tb testing.TB) func(db string) string {
	tb.Helper()
	return func(db string) string { return pgtest.Shared(tb).URL(db, "postgres") }
}

// bounced leads through a PgBouncer to the server at addr, for drivers that prepare no statements.
func bounced(tb testing.TB, addr string, settings ...string) func(db string) string {
	tb.Helper()
	b := pgtest.PgBouncer(tb, addr, settings...)
	return func(db string) string { return b.URL(db, "postgres") + "&default_query_exec_mode=exec" }
}

// locker returns one whose calls have time enough on a machine that is busy with other things.
func (s *shop) locker(tb testing.TB, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	return sqlshop.Locker(tb, s.store, append([]lock.Option{lock.WithBudget(3 * time.Second)}, opts...)...)
}

// sqlTx returns the transaction of the work over package database/sql, nil over pgx.
func sqlTx(ctx context.Context) *sql.Tx {
	tx, _ := pgstore.SQLTx(ctx)
	return tx
}

func (s *shop) orders(tb testing.TB) []string {
	tb.Helper()
	return sqlshop.Names(tb, s.DB, "SELECT name FROM orders ORDER BY name")
}

// order inserts a row in the transaction of the work.
func order(name string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		tx, ok := pgstore.Tx(ctx)
		if !ok {
			return nil, errors.New("no transaction")
		}
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", name); err != nil {
			return nil, err
		}
		return []byte(name), nil
	}
}

func TestCommitWithoutAnAnswer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		for _, may := range []bool{true, false} {
			t.Run(fmt.Sprintf("PgBouncer %v, may end sessions %v", pooled, may), func(t *testing.T) {
				t.Parallel()
				sqlshop.TestCommits(t, func(x *sqlproxy.Exchange) bool { return x.Begins("COMMIT") }, nil, func(t *testing.T) (*sqlshop.Shop, *sqlproxy.Proxy) {
					t.Helper()
					proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), nil)
					through := func(db string) string { return proxy.URL(db, "postgres") }
					if pooled {
						through = bounced(t, proxy.Addr())
					}
					s := openShop(t, through)
					if !may {
						run(t, s.db, "ALTER FUNCTION pg_terminate_backend RENAME TO pg_terminate_backend_no_more")
					}
					return s.Shop, proxy
				})
			})
		}
	}
}

// The session of a COMMIT without an answer is ended while it waits for its client in the middle of
// the transaction. It is not while it executes a statement, which may be the COMMIT, or when it is
// idle. Another session may have got its number meanwhile: that one was not there when COMMIT was sent.
func TestOnlyAnIdleTransactionIsEnded(t *testing.T) {
	t.Parallel()
	early := time.Now()
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	begin := func() (ctx context.Context, rollback func()) {
		ctx, tx, err := s.store.Begin(t.Context(), "k", "t")
		require.NoError(t, err)
		return ctx, func() { _ = tx.Rollback(t.Context()) }
	}
	session := func() uint32 { return one[uint32](t, s.pool, "SELECT pg_backend_pid() FROM pg_sleep(0.1)") }
	before := session()
	endIdle := func() { s.store.EndIdle(t.Context(), before, time.Now()) }
	_, rollback := begin()
	endIdle()
	rollback()
	require.Equal(t, before, session())

	ctx, rollback := begin()
	defer rollback()
	unlock := s.lock(t, "orders")
	executed := make(chan error, 1)
	go func() { executed <- exec(ctx, "INSERT INTO orders VALUES ('tea')") }()
	require.Eventually(t, func() bool { return s.waiting(t) == 1 }, 20*time.Second, 10*time.Millisecond)
	endIdle()
	unlock()
	require.NoError(t, <-executed)
	for range 10 {
		s.store.EndIdle(t.Context(), before, early)
		require.NoError(t, exec(ctx, "SELECT"))
	}
	require.Eventually(t, func() bool { endIdle(); return exec(ctx, "SELECT") != nil }, 20*time.Second, 10*time.Millisecond)
}

// A holder that was paused beyond its lease, while another ran and committed: its own is
// rolled back, and it gets the other's answer.
func TestLoserIsRolledBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	l := s.locker(t)
	receipt, replayed, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		must.Get(s.db.Exec(ctx, "UPDATE latch_entries SET ends_at = clock_timestamp() - interval '1 second'"))(t)
		other := s.locker(t)
		require.Equal(t, "winner", must.Run(t)(other.Once(ctx, "k", nil, order("winner"))))
		return order("loser")(ctx)
	})
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, "winner", string(receipt))
	require.Equal(t, []string{"winner"}, s.orders(t))
}

// serve answers a request with a body, and the key "k".
func serve(tb testing.TB, l *lock.Locker, body string, h http.HandlerFunc) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)(h).ServeHTTP(w, r)
	return w
}

// handle inserts an order, and answers 201 with its name.
func handle(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := exec(r.Context(), "INSERT INTO orders VALUES ($1)", name); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, name)
	}
}

// Another request with the key is refused at once, while the transaction of the first one is
// open, and while its receipt has locked the claim's row.
func TestOtherRequestWhileATransactionIsOpen(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "limits the time of a refusal")
	t.Parallel()
	const late = 3 * time.Second
	var commits atomic.Int64
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(x *sqlproxy.Exchange) sqlproxy.Fault {
		if x.Begins("COMMIT") && commits.Add(1) == 1 {
			return sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: late}
		}
		return sqlproxy.Fault{}
	})
	s := openShop(t, func(db string) string { return proxy.URL(db, "postgres") })
	first := s.locker(t, lock.WithBudget(2*late))
	there := pgstore.New(newPool(t, pgtest.Shared(t).URL(s.pool.Config().ConnConfig.Database, "postgres")))
	t.Cleanup(there.Close)
	other := (&shop{store: there}).locker(t, lock.WithBudget(2*late), lock.WithWait(0))
	running, answered := make(chan struct{}), make(chan *httptest.ResponseRecorder, 1)
	ended := make(chan struct{})
	proceed := sync.OnceFunc(func() { close(ended) })
	defer proceed()
	go func() {
		answered <- serve(t, first, "tea", func(w http.ResponseWriter, r *http.Request) {
			handle("tea")(w, r)
			close(running)
			<-ended
		})
	}()
	<-running
	refused := func() {
		for body, problem := range map[string]string{"coffee": "key-reused", "tea": "in-progress"} {
			w := serve(t, other, body, func(http.ResponseWriter, *http.Request) { panic("it runs") })
			require.Contains(t, w.Body.String(), "problems.md#"+problem+`"`)
		}
	}
	refused()
	proceed()
	require.Eventually(t, func() bool { return commits.Load() == 1 }, 20*time.Second, time.Millisecond)
	began := time.Now()
	refused()
	require.Less(t, time.Since(began), late/3)
	require.Empty(t, answered, "the first one waits for its COMMIT still")
	<-answered
}
