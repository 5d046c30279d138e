package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// aroundRouters are the guards that may stand around a router.
func aroundRouters(t *testing.T) map[string]func(http.Handler) http.Handler {
	t.Helper()
	l := newLocker(t, memstore.New())
	downs := newLocker(t, &stubStore{Store: memstore.New(), OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return lock.Entry{}, errors.New("down")
	}}, lock.WithLogger(quiet))
	idempotent, order := once(l), latch.Lock(l, "order", byUser)
	return map[string]func(http.Handler) http.Handler{
		"none":                     func(h http.Handler) http.Handler { return h },
		"Lock":                     order,
		"Lock with a cool-down":    latch.Lock(l, "cooled", keyfunc.IdempotencyKey, latch.WithCooldown(time.Nanosecond)),
		"Idempotent":               idempotent,
		"Idempotent around Lock":   func(h http.Handler) http.Handler { return idempotent(order(h)) },
		"Dedupe":                   latch.Dedupe(l, keyfunc.IdempotencyKey, time.Hour),
		"skipped":                  latch.Lock(l, "other", keyfunc.Optional(keyfunc.Header("X-Absent"))),
		"skipped, Idempotent":      latch.Idempotent(l, byUser, keyfunc.Optional(keyfunc.Header("X-Absent"))),
		"failing open":             latch.Lock(downs, "order", byUser, latch.WithFailOpen()),
		"failing open, Idempotent": latch.Idempotent(downs, byUser, keyfunc.IdempotencyKey, latch.WithFailOpen()),
	}
}

// TestPatternIsSeenOutside: an access log, or otelhttp, around a guard around a router finds
// the pattern in its request, as it does without the guard.
func TestPatternIsSeenOutside(t *testing.T) {
	t.Parallel()
	routers := map[string]func(log, guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler{
		"stdlib": func(log, guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("POST /orders/{id}/pay", h)
			return log(guard(mux))
		},
		"stdlib, nested": func(log, guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
			inner, outer := http.NewServeMux(), http.NewServeMux()
			inner.HandleFunc("POST /orders/{id}/pay", h)
			outer.Handle("/orders/", guard(inner))
			return log(outer)
		},
		"chi": func(log, guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
			r := chi.NewRouter()
			r.Use(log, guard)
			r.Post("/orders/{id}/pay", h)
			return r
		},
	}
	var keys atomic.Int64
	for name, route := range routers {
		for kind, guard := range aroundRouters(t) {
			for end, answer := range map[string]http.HandlerFunc{
				"returns": created,
				"fails":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
				"panics":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			} {
				t.Run(name+", "+kind+", "+end, func(t *testing.T) {
					t.Parallel()
					var inside, outside string
					log := func(next http.Handler) http.Handler {
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							defer func() { outside = r.Pattern }()
							next.ServeHTTP(w, r)
						})
					}
					srv := httptest.NewServer(route(log, guard, func(w http.ResponseWriter, r *http.Request) {
						inside = r.Pattern
						answer(w, r)
					}))
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/orders/7/pay", nil)
					require.NoError(t, err)
					key := fmt.Sprint(keys.Add(1))
					req.Header.Set("X-User-ID", key)
					req.Header.Set("Idempotency-Key", key)
					resp, err := srv.Client().Do(req)
					if end == "panics" {
						require.Error(t, err)
					} else {
						require.NoError(t, err)
						resp.Body.Close()
					}
					srv.Close() // waits for the handlers
					require.NotEmpty(t, inside)
					require.Equal(t, inside, outside)
				})
			}
		}
	}
}

// TestPatternOfAHandlerThatGoesOn: behind a TimeoutHandler, the router writes to its own request
// while the guard returns. It is for the race detector.
func TestPatternOfAHandlerThatGoesOn(t *testing.T) {
	t.Parallel()
	for kind, guard := range aroundRouters(t) {
		var running sync.WaitGroup
		release := make(chan struct{})
		mux := http.NewServeMux()
		mux.HandleFunc("POST /orders/{id}", func(_ http.ResponseWriter, r *http.Request) {
			<-release
			_ = r.Pattern
		})
		late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer running.Done()
			mux.ServeHTTP(w, r)
		})
		running.Add(1)
		h := guard(http.TimeoutHandler(late, time.Millisecond, "late"))
		r := httptest.NewRequest(http.MethodPost, "/orders/7", nil)
		r.Header.Set("X-User-ID", "late")
		r.Header.Set("Idempotency-Key", "late")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, kind)
		require.Empty(t, r.Pattern)
		close(release)
		running.Wait()
	}
}
