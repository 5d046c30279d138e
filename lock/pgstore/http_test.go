package pgstore_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/sealed"
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

// requireRuns requires that the next try runs, and that only this try has left a row.
func (s *shop) requireRuns(tb testing.TB, l *lock.Locker, body string) {
	tb.Helper()
	require.Empty(tb, s.orders(tb))
	w := serve(tb, l, body, handle("next", nil))
	require.Equal(tb, http.StatusCreated, w.Code, w.Body.String())
	require.Equal(tb, []string{"next"}, s.orders(tb))
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

// A handler has an effect that is not a row, and its process dies: no other handler runs, and no
// row exists, until an operator has looked.
func TestCommittedEffectOfAProcessThatDies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for the end of a lease")
	t.Parallel()
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), nil)
	s := openShop(t, func(db string) string { return proxy.URL(db, "postgres") })
	dying := lock.New(s.store, lock.WithTransaction(), lock.WithLogger(sqlshop.Quiet), lock.WithLease(time.Second), lock.WithBudget(300*time.Millisecond))
	there := pgstore.New(newPool(t, pgtest.Shared(t).URL(s.pool.Config().ConnConfig.Database, "postgres")))
	t.Cleanup(there.Close)
	other := (&shop{store: there}).locker(t)
	charged, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for runs := false; !runs; { // a busy machine may not serve the first
			serve(t, dying, "", handle("undone", func(w http.ResponseWriter, r *http.Request) {
				if runs = lock.Commit(r.Context()) == nil; !runs {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				close(charged)
				<-r.Context().Done() // its lease is lost
			}))
		}
	}()
	<-charged
	proxy.Close() // nothing more from it reaches the server
	var page []lock.Entry
	require.Eventually(t, func() (over bool) {
		var err error
		page, _, err = there.Page(t.Context(), "", 1, nil)
		return err == nil && page[0].State == lock.Abandoned
	}, 20*time.Second, 5*time.Millisecond)
	never := func(http.ResponseWriter, *http.Request) { panic("it runs") }
	requireProblem(t, serve(t, other, "", never), http.StatusConflict, "outcome-unknown")
	require.Eventually(t, func() bool { return s.sessionsInTransaction(t) == 0 }, 20*time.Second, 5*time.Millisecond)
	require.Empty(t, s.orders(t))
	ok, err := there.Forget(t.Context(), page[0].Key, page[0].Token)
	require.NoError(t, err)
	require.True(t, ok)
	s.requireRuns(t, other, "")
	<-over
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
	defer cancel()
	_ = dying.Close(ctx) // it cannot reach a server
}

// Receipts of transactions are sealed as well: the table has no part of an answer.
func TestSealedReceiptsOfTransactions(t *testing.T) {
	t.Parallel()
	const secret = "4111 1111 1111 1111"
	for name, readable := range map[string]bool{"sealed": false, "not sealed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, direct(t))
			var store lock.Store = s.store
			if !readable {
				block, err := aes.NewCipher(bytes.Repeat([]byte{42}, 32))
				require.NoError(t, err)
				aead, err := cipher.NewGCMWithRandomNonce(block)
				require.NoError(t, err)
				store = sealed.New(s.store, aead)
			}
			for i := range 2 {
				l := lock.New(store, lock.WithTransaction(), lock.WithLogger(sqlshop.Quiet), lock.WithBudget(10*time.Second))
				w := serve(t, l, secret, handle("order", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Card", secret)
					_, _ = io.WriteString(w, secret)
				}))
				require.Equal(t, secret, w.Body.String())
				require.Equal(t, secret, w.Header().Get("X-Card"))
				require.Equal(t, i > 0, w.Header().Get("Idempotent-Replayed") == "true")
				require.NoError(t, l.Close(t.Context()))
			}
			require.Equal(t, []string{"order"}, s.orders(t))
			rows, err := s.db.Query(t.Context(), "SELECT key || token || fingerprint || owner || coalesce(receipt, '') FROM latch_entries")
			require.NoError(t, err)
			all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.Equal(t, readable, bytes.Contains(all[0], []byte("4111")))
		})
	}
}
