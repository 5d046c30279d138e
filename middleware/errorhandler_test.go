package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestErrorHandlerCanReadTheBody: an error handler may show the form again, so it finds the request as
// the handler would have, whatever has read it before.
func TestErrorHandlerCanReadTheBody(t *testing.T) {
	t.Parallel()
	const body = `{"sku":"x","n":12345}`
	small := latch.WithBodyLimits(10, 10)
	down := func(context.Context, string, lock.Claim) (lock.Entry, error) { return lock.Entry{}, lock.ErrNotApplied }
	for name, tt := range map[string]struct {
		status  int
		claim   func(context.Context, string, lock.Claim) (lock.Entry, error)
		key     keyfunc.Func
		opts    []latch.IdempotentOption
		handler http.HandlerFunc // nil: it does not run
	}{
		"unavailable":        {status: 503, claim: down, key: keyfunc.IdempotencyKey},
		"missing":            {status: 400, key: func(*http.Request) (string, error) { return "", keyfunc.ErrMissing }},
		"missing in JSON":    {status: 400, key: keyfunc.JSON("/id")},
		"invalid":            {status: 400, key: keyfunc.JSON("/n/x")},
		"too large":          {status: 413, key: keyfunc.IdempotencyKey, opts: []latch.IdempotentOption{small}},
		"too large for JSON": {status: 413, key: keyfunc.JSON("/sku"), opts: []latch.IdempotentOption{small}},
		"lost, and read": {status: 409, key: keyfunc.IdempotencyKey, handler: func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			<-r.Context().Done()
		}},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", chunked: ", chunked), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &mortalStore{Store: &stubStore{Store: memstore.New(), OnClaim: tt.claim}}
					l := lock.New(store, lock.WithLogger(quiet))
					defer func() { store.Dead.Store(false); end(l) }()
					handler := mustNotRun(t)
					if tt.handler != nil {
						handler = func(w http.ResponseWriter, r *http.Request) { store.Dead.Store(true); tt.handler(w, r) }
					}
					var read []byte
					h := latch.Idempotent(l, byUser, tt.key, append(tt.opts, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
						require.NoError(t, r.Context().Err())
						var err error
						read, err = io.ReadAll(r.Body)
						require.NoError(t, err)
						p.ServeHTTP(w, r)
					}))...)(handler)
					w := serve(h, typed("application/json", body, chunked))
					require.Equal(t, tt.status, w.Code, w.Body)
					require.Equal(t, body, string(read))
				})
			})
		}
	}
}

// TestKeyErrorCarriesHeaders: a 401 without WWW-Authenticate is none.
func TestKeyErrorCarriesHeaders(t *testing.T) {
	t.Parallel()
	own := &keyfunc.Error{Status: 401, Header: http.Header{
		"Www-Authenticate": {`Bearer realm="orders"`, "Basic"}, "x-lower": {"1"}, "Cache-Control": {"public"}, "Content-Type": {"text/html"},
	}}
	fails := func(*http.Request) (string, error) { return "", own }
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"Lock":             latch.Lock(l, "user", fails),
		"Idempotent scope": latch.Idempotent(l, fails, keyfunc.IdempotencyKey),
		"Idempotent key":   latch.Idempotent(l, byUser, keyfunc.Hash(keyfunc.Join(fails))),
		"Dedupe":           latch.Dedupe(l, keyfunc.Optional(fails), time.Hour),
		"fingerprint":      once(l, latch.WithFingerprint(fails)),
		"own error handler": latch.Lock(l, "user", fails, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			p.Header.Set("X-Lower", "1")
			p.ServeHTTP(w, r)
		})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(guard(mustNotRun(t)), keyed("k"))
			require.Equal(t, 401, w.Code)
			require.Equal(t, []string{`Bearer realm="orders"`, "Basic"}, w.Header().Values("WWW-Authenticate"))
			require.Equal(t, []string{"1"}, w.Header().Values("X-Lower"))
			require.Equal(t, []string{"no-store"}, w.Header().Values("Cache-Control"))
			require.Equal(t, []string{"application/problem+json"}, w.Header().Values("Content-Type"))
		})
	}
	require.Len(t, own.Header, 4, "the error belongs to the key function")
}

// TestKeyErrorDoesNotFrameTheBody: headers that a key function has copied from an
// answer of its upstream, say, frame that one's body and not ours.
func TestKeyErrorDoesNotFrameTheBody(t *testing.T) {
	t.Parallel()
	own := &keyfunc.Error{Status: 403, Header: http.Header{"content-length": {"3"}, "Transfer-Encoding": {"identity"}, "X-Reason": {"1"}}}
	fails := func(*http.Request) (string, error) { return "", own }
	server := startServer(t, latch.Lock(newLocker(t, memstore.New()), "user", fails)(mustNotRun(t)))
	answer := over(t.Context(), t, server, post("42"))
	require.Equal(t, 403, answer.status)
	require.Equal(t, "1", answer.header.Get("X-Reason"))
	require.JSONEq(t, `{"title":"Forbidden","status":403}`, string(answer.body))
}

func TestPlainKeyErrorIsTheServersFault(t *testing.T) {
	for name, guard := range map[string]func(l *lock.Locker, f keyfunc.Func) func(http.Handler) http.Handler{
		"lock": func(l *lock.Locker, f keyfunc.Func) func(http.Handler) http.Handler {
			return latch.Lock(l, "lock", keyfunc.Join(f))
		},
		"idempotent": func(l *lock.Locker, f keyfunc.Func) func(http.Handler) http.Handler {
			return latch.Idempotent(l, keyfunc.Optional(f), keyfunc.IdempotencyKey)
		},
		"idempotent ": func(l *lock.Locker, f keyfunc.Func) func(http.Handler) http.Handler {
			return latch.Idempotent(l, byUser, keyfunc.Hash(f))
		},
		"dedupe": func(l *lock.Locker, f keyfunc.Func) func(http.Handler) http.Handler {
			return latch.Dedupe(l, f, time.Hour)
		},
		"idempotent  ": func(l *lock.Locker, f keyfunc.Func) func(http.Handler) http.Handler {
			return once(l, latch.WithFingerprint(f))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			logger := lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))
			synctest.Test(t, func(t *testing.T) {
				l := lock.New(memstore.New(), logger)
				defer end(l)
				h := guard(l, func(*http.Request) (string, error) { return "", errors.New("no session store") })(mustNotRun(t))
				requireLine := func(repeated int) {
					t.Helper()
					var line struct {
						Level, Name, Error string
						Repeated           int
					}
					require.NoError(t, json.Unmarshal(out.Bytes(), &line), "exactly one line: %s", out.String())
					require.Equal(t, "ERROR", line.Level)
					require.Equal(t, strings.TrimSpace(name), line.Name)
					require.Equal(t, "no session store", line.Error)
					require.Equal(t, repeated, line.Repeated)
					out.Reset()
				}
				for range 3 {
					requireProblem(t, wantProblem{status: 500, kind: "key-failed"}, serve(h, keyed("k")))
				}
				requireLine(0)
				time.Sleep(time.Minute)
				requireProblem(t, wantProblem{status: 500, kind: "key-failed"}, serve(h, keyed("k")))
				requireLine(2)
				time.Sleep(time.Minute)

				// A client that has gone is no failure.
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				require.Equal(t, 500, serve(h, keyed("k").WithContext(gone)).Code)
				require.Empty(t, out.String())
			})
		})
	}
}

// An error handler that panics leaves nothing.
func TestErrorHandlerPanics(t *testing.T) {
	store := memstore.New()
	l := newLocker(t, store)
	var e effects
	boom := latch.WithErrorHandler(func(http.ResponseWriter, *http.Request, *latch.Problem) { panic("boom") })
	h := once(l, boom)(latch.Lock(l, "user", byUser, boom)(http.HandlerFunc(e.answer)))
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	require.PanicsWithValue(t, "boom", func() { serve(h, keyed("k")) })
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
}
