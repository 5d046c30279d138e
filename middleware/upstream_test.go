package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var bothStores = map[string]func(t *testing.T) lock.Store{
	"memory": func(*testing.T) lock.Store { return memstore.New() },
	"redis":  redisStore,
}

// gateway is a reverse proxy to backend behind guard, on a separate server.
func gateway(t *testing.T, guard func(http.Handler) http.Handler, backend http.Handler, flush time.Duration) (submit func() exchange) {
	t.Helper()
	upstream, err := url.Parse(startServer(t, backend).URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.FlushInterval = flush
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	server := startServer(t, guard(proxy))
	return func() exchange {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return over(ctx, t, server, keyed("k"))
	}
}

// TestGuardedGatewayKeepsNoRefusalOfItsBackend: both have one store, and one
// prefix. The backend refuses as long as the resource is taken, and not for as
// long as the gateway keeps answers.
func TestGuardedGatewayKeepsNoRefusalOfItsBackend(t *testing.T) {
	t.Parallel()
	outer := map[string]func(l *lock.Locker) func(http.Handler) http.Handler{
		"Idempotent": func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) },
		"Dedupe":     func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, time.Hour) },
		"WithFinal of everything": func(l *lock.Locker) func(http.Handler) http.Handler {
			return once(l, latch.WithFinal(func(int) bool { return true }))
		},
	}
	own := latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		p.RetryAfter = 0
		w.Header().Del("Retry-After")
		p.ServeHTTP(w, r)
	})
	inner := map[string]struct {
		guard func(l *lock.Locker) func(http.Handler) http.Handler
		key   string
	}{
		"Lock": {func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", byUser, own) }, lock.Key("user", "42")},
		"Lock with 423": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Lock(l, "user", byUser, own, latch.WithContentionStatus(423))
		}, lock.Key("user", "42")},
	}
	for storeName, open := range bothStores {
		for outerName, outer := range outer {
			for innerName, inner := range inner {
				for flushName, flush := range map[string]time.Duration{"buffered": 0, "flushing": -1} {
					t.Run(storeName+" "+outerName+" "+innerName+" "+flushName, func(t *testing.T) {
						t.Parallel()
						store := open(t)
						l := newLocker(t, store, patient)
						var e effects
						submit := gateway(t, outer(l), inner.guard(newLocker(t, store, patient))(http.HandlerFunc(e.answer)), flush)
						lease, err := l.Acquire(t.Context(), inner.key)
						require.NoError(t, err)
						require.Contains(t, string(submit().body), "#held")
						require.NoError(t, lease.Release(t.Context()))
						first := submit()
						require.Equal(t, 201, first.status, "the resource is free: %s", first.body)
						e.require(t, 1)
					})
				}
			}
		}
	}
}

// TestGatewayBeforeItsOwnClaim: the backend sees the claim of its gateway. Once
// it has its own prefix, the next try runs.
func TestGatewayBeforeItsOwnClaim(t *testing.T) {
	t.Parallel()
	for storeName, open := range bothStores {
		t.Run(storeName, func(t *testing.T) {
			t.Parallel()
			shared := open(t)
			var e effects
			backend := once(newLocker(t, shared, patient, lock.WithWait(0)))(http.HandlerFunc(e.answer))
			submit := gateway(t, once(newLocker(t, shared, patient)), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				backend.ServeHTTP(w, r)
			}), 0)
			for range 2 {
				refused := submit()
				require.Contains(t, string(refused.body), "#in-progress")
				require.Empty(t, refused.header.Get("Idempotent-Replayed"), "not kept")
			}
			backend = once(newLocker(t, open(t), patient))(http.HandlerFunc(e.answer))
			require.Equal(t, 201, submit().status)
			require.Equal(t, "true", submit().header.Get("Idempotent-Replayed"))
			e.require(t, 1)
		})
	}
}

// problemBase begins the types of our problems.
const problemBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// TestUpstreamRefusals checks which answers of a handler count as the refusal of a guard behind a
// proxy, in a guard that keeps every other answer: the header decides, and not the body.
func TestUpstreamRefusals(t *testing.T) {
	t.Parallel()
	ours := `{"type":"` + problemBase + `held","title":"t","status":409}`
	tests := map[string]struct {
		status int
		mark   string // Latch-Problem; "": none
		body   string
		kept   bool
	}{
		"marked":          {409, "held", ours, false},
		"another status":  {503, "unavailable", ours, false},
		"an unknown kind": {422, "of-the-future", ours, false},
		"another format":  {400, "key-missing", "no key", false},
		"no body":         {409, "held", "", false},
		"a long body":     {409, "held", strings.Repeat("t", 3<<20), false},
		"below 400":       {201, "held", ours, true},
		"not marked":      {409, "", ours, true},
	}
	for name, tt := range tests {
		for _, flushes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", flushes: ", flushes), func(t *testing.T) {
				t.Parallel()
				var e effects
				h := once(newLocker(t, memstore.New()), latch.WithFinal(func(int) bool { return true }))(
					e.then(func(w http.ResponseWriter, _ *http.Request) {
						if tt.mark != "" {
							w.Header().Set("Latch-Problem", tt.mark)
						}
						w.Header().Set("Content-Length", strconv.Itoa(len(tt.body)))
						w.WriteHeader(tt.status)
						if flushes {
							require.NoError(t, http.NewResponseController(w).Flush())
						}
						_, _ = io.WriteString(w, tt.body)
					}))
				require.Equal(t, tt.status, serve(h, keyed("k")).Code)
				again := serve(h, keyed("k"))
				require.Equal(t, tt.status, again.Code)
				require.Equal(t, tt.body, again.Body.String())
				require.Equal(t, tt.kept, again.Header().Get("Idempotent-Replayed") == "true")
			})
		}
	}
}

// TestRefusalAfterCommitIsNotKept: the effect has happened, so the handler does not run again. But
// the refusal of a service is no answer to a repeat.
func TestRefusalAfterCommitIsNotKept(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]http.Handler{
		"of a service": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Latch-Problem", "held")
			w.WriteHeader(http.StatusConflict)
		}),
		"of the handler": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(&latch.Problem{Status: http.StatusConflict}).Respond(w, r, nil)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, lock.Commit(r.Context()))
				refuse.ServeHTTP(w, r)
			}))
			require.Equal(t, http.StatusConflict, serve(h, keyed("k")).Code)
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
			e.require(t, 1)
		})
	}
}

// TestTryAgainIsNotKept: an answer of 400 and above that says when to try again is not kept. An
// answer below 400 is kept: it says when to look for the result of work that has begun.
func TestTryAgainIsNotKept(t *testing.T) {
	t.Parallel()
	all := latch.WithFinal(func(int) bool { return true })
	below := latch.WithFinal(func(status int) bool { return status < 400 })
	tests := []struct {
		name   string
		status int
		after  string
		commit bool
		opts   []latch.IdempotentOption
		kept   bool
	}{
		{"400", 400, "1", false, nil, false},
		{"409", 409, "1", false, nil, false},
		{"413", 413, "120", false, nil, false},
		{"a date", 404, "Fri, 31 Dec 1999 23:59:59 GMT", false, nil, false},
		{"409 without it", 409, "", false, nil, true},
		{"committed", 409, "1", true, nil, true},
		{"accepted, look again soon", 202, "3", false, nil, true},
		{"see other, soon", 303, "3", false, nil, true},
		{"WithFinal goes by the status", 409, "1", false, []latch.IdempotentOption{all}, true},
		{"WithFinal goes by the status", 409, "", false, []latch.IdempotentOption{below}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var e effects
			h := once(newLocker(t, memstore.New()), tt.opts...)(e.then(func(w http.ResponseWriter, r *http.Request) {
				if tt.commit {
					require.NoError(t, lock.Commit(r.Context()))
				}
				w.Header().Set("Retry-After", tt.after)
				w.WriteHeader(tt.status)
			}))
			require.Equal(t, tt.status, serve(h, keyed("k")).Code)
			require.Equal(t, tt.status, serve(h, keyed("k")).Code)
			e.require(t, map[bool]int64{true: 1, false: 2}[tt.kept])
		})
	}
}

// TestRefusedDoRunsAgain: the handler's own lock was taken, and it said so.
func TestRefusedDoRunsAgain(t *testing.T) {
	t.Parallel()
	for storeName, open := range bothStores {
		t.Run(storeName, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, open(t), patient)
			var e effects
			h := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := l.Do(r.Context(), lock.Key("stock", "7"), func(context.Context) error {
					e.answer(w, r)
					return nil
				})
				if errors.Is(err, lock.ErrHeld) {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusConflict)
					require.NoError(t, json.NewEncoder(w).Encode("busy"))
				}
			}))
			lease, err := l.Acquire(t.Context(), lock.Key("stock", "7"))
			require.NoError(t, err)
			require.Equal(t, 409, serve(h, keyed("k")).Code)
			require.NoError(t, lease.Release(t.Context()))
			first := serve(h, keyed("k"))
			require.Equal(t, 201, first.Code)
			requireReplay(t, first, serve(h, keyed("k")))
			e.require(t, 1)
		})
	}
}

// TestGatewayKeepsAnswersWithALength: httputil.ReverseProxy flushes answers without a length, and
// flushed answers are not kept. Upstream is the cure, or a ModifyResponse by hand.
func TestGatewayKeepsAnswersWithALength(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	whole := func(answer *http.Response) error {
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		answer.Body = io.NopCloser(bytes.NewReader(body))
		answer.ContentLength = int64(len(body))
		answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}
	for name, tt := range map[string]struct {
		modify func(*http.Response) error
		again  int
	}{
		"in chunks": {nil, 409},
		"whole":     {whole, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			upstream, err := url.Parse(startServer(t, e.then(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, long)
			})).URL)
			require.NoError(t, err)
			proxy := httputil.NewSingleHostReverseProxy(upstream)
			proxy.Transport = &http.Transport{DisableKeepAlives: true}
			proxy.ModifyResponse = tt.modify
			server := startServer(t, once(newLocker(t, memstore.New()))(proxy))
			require.Equal(t, long, string(over(t.Context(), t, server, keyed("k")).body))
			require.Equal(t, tt.again, over(t.Context(), t, server, keyed("k")).status)
			e.require(t, 1)
		})
	}
}
