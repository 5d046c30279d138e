package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func aroundRouters(t *testing.T) map[string]guardFunc {
	t.Helper()
	l := newLocker(t, memstore.New())
	downs := newLocker(t, unreachable(), lock.WithLogger(quiet))
	idempotent, order := once(l), latch.Lock(l, "order", byUser)
	return map[string]guardFunc{
		"none":                     func(h http.Handler) http.Handler { return h },
		"Lock":                     order,
		"Lock with a cool-down":    latch.Lock(l, "cooled", keyfunc.IdempotencyKey, latch.WithCooldown(time.Nanosecond)),
		"Idempotent":               idempotent,
		"Idempotent around Lock":   nest(idempotent, order),
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
	routers := map[string]func(log, guard guardFunc, h http.HandlerFunc) http.Handler{
		"stdlib": func(log, guard guardFunc, h http.HandlerFunc) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("POST /orders/{id}/pay", h)
			return log(guard(mux))
		},
		"stdlib, nested": func(log, guard guardFunc, h http.HandlerFunc) http.Handler {
			inner, outer := http.NewServeMux(), http.NewServeMux()
			inner.HandleFunc("POST /orders/{id}/pay", h)
			outer.Handle("/orders/", guard(inner))
			return log(outer)
		},
		"chi": func(log, guard guardFunc, h http.HandlerFunc) http.Handler {
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
				parallel.Run(t, name+", "+kind+", "+end, func(t *testing.T) {
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
					r := clientRequest(t, srv.URL, fmt.Sprint(keys.Add(1)))
					r.URL.Path = "/orders/7/pay"
					r.Header.Set("X-User-ID", r.Header.Get("Idempotency-Key"))
					require.Equal(t, end == "panics", exchanged(t, srv, r).status == 0)
					srv.Close() // waits for the handlers
					require.NotEmpty(t, inside)
					require.Equal(t, inside, outside)
				})
			}
		}
	}
}

// Behind a TimeoutHandler, the router writes to its own request while the guard returns. It is for the race detector.
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

// recordStore notes the record that a request belongs to.
type recordStore struct {
	lock.Store
	record string
}

func (s *recordStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	s.record = key
	return s.Store.Claim(ctx, key, c)
}

// parsed is a request of user 42 as it comes over a connection; ok is false if it does not.
func parsed(target string) (r *http.Request, ok bool) {
	raw := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-User-ID: 42\r\nIdempotency-Key: k\r\n\r\n", target)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	return r, err == nil
}

// TestPathsInTwoSpellingsAreOneRecord sends every byte raw, where HTTP allows that, and in its escapes. ServeMux
// decides which of them are one path: spellings that lead to one pattern with equal wildcards.
func TestPathsInTwoSpellingsAreOneRecord(t *testing.T) {
	t.Parallel()
	store := &recordStore{Store: memstore.New()}
	guarded := once(newLocker(t, store))(http.HandlerFunc(created))
	var routed string
	mux := http.NewServeMux()
	for _, pattern := range []string{"/x/{v}", "/x/{v}/{w}", "/{rest...}"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			routed = fmt.Sprintf("%q", []string{r.Pattern, r.PathValue("v"), r.PathValue("w"), r.PathValue("rest")})
			guarded.ServeHTTP(w, r)
		})
	}
	type path struct{ target, routed, record string }
	byRecord, byRoute := make(map[string]path), make(map[string]path)
	try := func(target string) {
		r, ok := parsed(target)
		if !ok {
			return // no such request
		}
		p := path{target: target}
		routed, store.record = "", ""
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if routed == "" {
			return // ServeMux asks for another path, which is clean
		}
		p.routed, p.record = routed, store.record
		require.NotEmpty(t, p.record)
		if other, ok := byRecord[p.record]; ok {
			require.Equal(t, other.routed, p.routed, "%q and %q are two paths with one record", other.target, target)
		}
		if other, ok := byRoute[p.routed]; ok {
			require.Equal(t, other.record, p.record, "%q and %q are one path with two records", other.target, target)
		}
		byRecord[p.record], byRoute[p.routed] = p, p
	}
	for c := range 256 {
		for _, s := range []string{string([]byte{byte(c)}), fmt.Sprintf("%%%02X", c), fmt.Sprintf("%%%02x", c)} {
			for _, target := range []string{"/x/a" + s + "b", "/x/%61" + s + "b", "/x/a" + s + "%2fb", "/x/a" + s + "b/c" + s, "/x/" + s + "/" + s + s} {
				try(target)
			}
		}
	}
	require.Greater(t, len(byRecord), 900)
}

// Records from before a deployment are found after it, for all paths except paths with an unnecessary escape.
func TestPathsKeepTheirRecords(t *testing.T) {
	t.Parallel()
	store := &recordStore{Store: memstore.New()}
	guarded := once(newLocker(t, store))(http.HandlerFunc(created))
	for target, record := range map[string]string{
		"/":                "once:11ae1c5649647d09faad7853bd9753a718be53ab89e9c22669bef870f05c1776",
		"/orders":          "once:49fb38377a81177971e4d457fbc81d4e7ac33376c17377c0269f8ec73e730001",
		"/orders/7/pay":    "once:0b63053822494a64c09e18df6551366a796efc8f60d158f8f3efd0f080a1306d",
		"/orders/%37/pay":  "once:0b63053822494a64c09e18df6551366a796efc8f60d158f8f3efd0f080a1306d",
		"/orders/a%2Fb":    "once:bbe871fa16bc2f77924cff307280a1f36ca36a9e470a9f775ec1366dd699c5b5",
		"/a%20b/caf%C3%A9": "once:3954cab37a635f8c7f0fde1f1b0e19355b987ce95be2ffdc0a61b11ae1d316b2",
		"/a;b,c":           "once:4931b36cc6023300775c68b9ba85a84cb4d8ddde6f81a003d8df15d835f4e6d8",
		"/$&+=:@!'()*~-._": "once:f3f848631caf477f3ea43fff24112a06a6bbfc34c2a047e35c054d82fd988455",
		"/a%2Fb!":          "once:220043b43a31b95bf145da58692336c326f28dda671c7e70d780d4bbe3295e30",
	} {
		r, ok := parsed(target)
		require.True(t, ok)
		serve(guarded, r)
		require.Equal(t, record, store.record, target)
	}
}
