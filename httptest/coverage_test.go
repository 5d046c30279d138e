package latchtest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// failing is a test that notes its errors.
type failing struct {
	testing.TB

	errors []string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) {
	f.errors = append(f.errors, strings.TrimPrefix(fmt.Sprintf(format, args...), "latchtest.Coverage: "))
}

// routes is an application whose routes have all kinds of guards, or none. Its handlers must not run.
func routes(t *testing.T, unguarded ...string) *http.ServeMux {
	t.Helper()
	l := lock.New(memstore.New())
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	byUser := keyfunc.Header("X-User-ID")
	never := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the handler of %s ran", r.Pattern) })
	authenticated := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", authenticated(latch.Idempotent(l, byUser, keyfunc.IdempotencyKey)(never)))
	mux.Handle("PUT /orders/{id}/lines/{rest...}", latch.Lock(l, "order", keyfunc.PathValue("id"))(never))
	mux.Handle("DELETE admin.example/orders/{id}", latch.Dedupe(l, byUser, time.Second)(never))
	mux.Handle("/carts/{$}", latch.LockAll(l, "item", keyfunc.Each("/items/*/sku"))(never))
	mux.Handle("POST /comments", latch.Refuse()(never))
	mux.Handle("GET /orders", never)
	mux.Handle("HEAD /health", never)
	mux.Handle("QUERY /orders", never)
	mux.Handle("PROPFIND /files/", never)
	for i := range 20 { // more children than the mux keeps in a slice
		mux.Handle(fmt.Sprintf("POST /jobs%d/{id}", i), latch.Lock(l, "job", keyfunc.PathValue("id"))(never))
	}
	for _, pattern := range unguarded {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	}
	return mux
}

func signedIn(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Header.Set("Authorization", "Bearer 42")
	return r
}

// TestCoverage: guards are found behind authentication, for each method that has an effect.
func TestCoverage(t *testing.T) {
	t.Parallel()
	latchtest.Coverage(t, routes(t), signedIn)
	latchtest.Coverage(t, routes(t, "POST /logout"), signedIn, "POST /logout")
}

// TestCoverageFails is the twin: each route without a guard is named, and each exception that is none.
func TestCoverageFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unguarded  []string
		newRequest func(method, target string) *http.Request
		exceptions []string
		says       []string
	}{
		"routes without a guard": {
			[]string{"POST /refunds", "/everything/", "PATCH /orders/{id}", "POST shop.example/{id}"},
			signedIn, nil,
			[]string{
				`"/everything/" has no guard: POST /everything/ was answered with 202`,
				`"PATCH /orders/{id}" has no guard: PATCH /orders/latch-coverage was`,
				`"POST /refunds" has no guard: POST /refunds was`,
				`"POST shop.example/{id}" has no guard: POST http://shop.example/latch-coverage was`,
			},
		},
		"not signed in":      {nil, nil, nil, []string{`"POST /orders" has no guard: POST /orders was answered with 401`}},
		"a guarded one":      {nil, signedIn, []string{"POST /comments"}, []string{`"POST /comments" is an exception, and has a guard`}},
		"one that is absent": {nil, signedIn, []string{"POST /logout"}, []string{`the exception "POST /logout" is no pattern of the mux`}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			f := &failing{TB: t}
			latchtest.Coverage(f, routes(t, c.unguarded...), c.newRequest, c.exceptions...)
			require.Len(t, f.errors, len(c.says), f.errors)
			for i, says := range c.says {
				require.Contains(t, f.errors[i], says)
			}
		})
	}
	f := &failing{TB: t}
	latchtest.Coverage(f, http.NewServeMux(), nil)
	require.Equal(t, []string{"no patterns were found in the mux"}, f.errors)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /panics", func(http.ResponseWriter, *http.Request) { panic("no request for a test") })
	f = &failing{TB: t}
	latchtest.Coverage(f, mux, nil)
	require.Len(t, f.errors, 1)
	require.Contains(t, f.errors[0], "500")
}
