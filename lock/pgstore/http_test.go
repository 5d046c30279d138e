package pgstore_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// serve answers a request with a body, and the key "k".
func serve(tb testing.TB, l *lock.Locker, body string, h http.HandlerFunc, opts ...latch.IdempotentOption) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey, opts...)(h).ServeHTTP(w, r)
	return w
}

// handle inserts an order, and then calls then, or answers 201 with its name if then is nil.
func handle(name string, then func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := exec(r.Context(), "INSERT INTO orders VALUES ($1)", name); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if then != nil {
			then(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, name)
	}
}

func requireProblem(tb testing.TB, w *httptest.ResponseRecorder, status int, name string) {
	tb.Helper()
	require.Equal(tb, status, w.Code, w.Body.String())
	require.Contains(tb, w.Body.String(), "problems.md#"+name+`"`)
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
		answered <- serve(t, first, "tea", handle("tea", func(w http.ResponseWriter, _ *http.Request) {
			close(running)
			<-ended
			w.WriteHeader(http.StatusCreated)
		}))
	}()
	<-running
	never := func(http.ResponseWriter, *http.Request) { panic("it runs") }
	requireProblem(t, serve(t, other, "coffee", never), http.StatusUnprocessableEntity, "key-reused")
	requireProblem(t, serve(t, other, "tea", never), http.StatusConflict, "in-progress")
	proceed()
	require.Eventually(t, func() bool { return commits.Load() == 1 }, 20*time.Second, time.Millisecond)
	began := time.Now()
	requireProblem(t, serve(t, other, "coffee", never), http.StatusUnprocessableEntity, "key-reused")
	requireProblem(t, serve(t, other, "tea", never), http.StatusConflict, "in-progress")
	took := time.Since(began)
	require.Less(t, took, late/3)
	require.Empty(t, answered, "the first one waits for its COMMIT still")
	<-answered
}
