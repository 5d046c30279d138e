package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestFinalPolicy says which answers are kept.
func TestFinalPolicy(t *testing.T) {
	t.Parallel()
	kept := map[int]bool{
		200: true, 201: true, 202: true, 204: true, 302: true, 400: true, 402: true, 404: true, 409: true, 410: true, 412: true, 422: true, 423: true,
		401: false, 403: false, 408: false, 425: false, 429: false, 500: false, 502: false, 503: false, 507: false,
	}
	for status, keep := range kept {
		for _, commit := range []bool{false, true} {
			l := newLocker(t, lock.NewMemory())
			var e effects
			h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
				if commit {
					require.NoError(t, lock.Commit(r.Context()))
				}
				w.Header().Set("Content-Type", "text/x-own")
				w.WriteHeader(status)
				if status != 204 {
					_, _ = io.WriteString(w, "own answer")
				}
			}))
			first := serve(h, keyed("k"))
			require.Equal(t, status, first.Code)
			require.Equal(t, "text/x-own", first.Header().Get("Content-Type"))
			again := serve(h, keyed("k"))
			if keep || commit {
				requireReplay(t, first, again)
				e.require(t, 1)
				continue
			}
			require.Equal(t, first.Result().Header, again.Result().Header, "%d runs again", status)
			require.Equal(t, first.Body, again.Body)
			e.require(t, 2)
		}
	}
}

func TestWithFinal(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lock.NewMemory())
	status := 400
	h := once(l, latch.WithFinal(func(status int) bool { return status < 300 || status == 503 }))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	require.Equal(t, 400, serve(h, keyed("k")).Code)
	status = 503
	require.Equal(t, 503, serve(h, keyed("k")).Code, "a 400 is not kept")
	status = 200
	require.Equal(t, 503, serve(h, keyed("k")).Code, "a 503 is")
}

// TestPanicFrees: without Commit the next request runs, after it none does.
func TestPanicFrees(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]func(){
		"panic":           func() { panic("boom") },
		"ErrAbortHandler": func() { panic(http.ErrAbortHandler) },
		"Goexit":          runtime.Goexit,
	} {
		for _, commit := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLocker(t, lock.NewMemory())
				var e effects
				h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
					if e.n.Load() > 1 {
						return
					}
					w.WriteHeader(201)
					_, _ = io.WriteString(w, "half an answer")
					if commit {
						assert.NoError(t, lock.Commit(r.Context()))
					}
					abort()
				}))
				var w *httptest.ResponseRecorder
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() {
						if p := recover(); name == "panic" && p != "boom" || name == "ErrAbortHandler" && p != http.ErrAbortHandler { //nolint:errorlint // it must be the very value
							t.Errorf("panicked with %v", p)
						}
					}()
					w = httptest.NewRecorder()
					h.ServeHTTP(w, keyed("k"))
				})
				wg.Wait()
				require.Empty(t, w.Body.String(), "nothing of it has left")
				if commit {
					requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
					e.require(t, 1)
					return
				}
				require.Equal(t, 200, serve(h, keyed("k")).Code)
				e.require(t, 2)
			})
		}
	}
}

// TestPanicLeavesNoHeaders: the code that answers instead does so as if
// nothing had been written.
func TestPanicLeavesNoHeaders(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		l := newLocker(t, lock.NewMemory())
		guarded := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			w.Header().Set("X-Outer", "changed")
			if begun {
				w.WriteHeader(201)
			}
			panic("boom")
		}))
		w := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					w.WriteHeader(500)
				}
			}()
			w.Header().Set("X-Outer", "1")
			guarded.ServeHTTP(w, r)
		}), keyed("k"))
		require.Equal(t, 500, w.Code)
		require.Equal(t, http.Header{"X-Outer": {"1"}}, w.Header(), "begun: %v", begun)
	}
}
