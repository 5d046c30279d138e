package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestKeySyntax: what the header may look like is decided before any claim.
func TestKeySyntax(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l)(http.HandlerFunc(e.answer))
	first := serve(h, keyed("8e03978e-40d5"))
	requireReplay(t, first, serve(h, keyed(`"8e03978e-40d5"`)))
	for _, lines := range [][]string{
		{""}, {`""`}, {strings.Repeat("k", 256)}, {strings.Repeat("k", 1<<20)}, {"a, b"}, {"a", "b"}, {"a", "a"}, {"a;v=1"}, {"a\x01"}, {"ä"},
	} {
		r := keyed("")
		r.Header["Idempotency-Key"] = lines
		requireProblem(t, wantProblem{status: 400, kind: "key-invalid"}, serve(h, r))
	}
	e.require(t, 1)
}

// TestIdentity says what makes two requests two, and what does not.
func TestIdentity(t *testing.T) {
	t.Parallel()
	request := func(method, target, user, key, body string) *http.Request {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("X-User-ID", user)
		r.Header.Set("Idempotency-Key", key)
		return r
	}
	tests := []struct {
		name string
		r    *http.Request
		want int // 201: its own; 200: the first one's answer; 422
	}{
		{"the same", request("POST", "/orders?a=1&b=2", "42", "k", "body"), 200},
		{"reordered query", request("POST", "/orders?b=2&a=1", "42", "k", "body"), 200},
		{"another spelling of the query", request("POST", "/orders?a=%31&b=2", "42", "k", "body"), 200},
		{"another value", request("POST", "/orders?a=1&b=3", "42", "k", "body"), 422},
		{"one value more", request("POST", "/orders?a=1&b=2&b=3", "42", "k", "body"), 422},
		{"no query", request("POST", "/orders", "42", "k", "body"), 422},
		{"query that does not parse", request("POST", "/orders?a=1&b=2&%zz", "42", "k", "body"), 422},
		{"another body", request("POST", "/orders?a=1&b=2", "42", "k", "bodY"), 422},
		{"no body", request("POST", "/orders?a=1&b=2", "42", "k", ""), 422},
		{"another spelling of the path", request("POST", "/%6frders?a=1&b=2", "42", "k", "body"), 200},
		{"another path", request("POST", "/orders/", "42", "k", "body"), 201},
		{"another method", request("PUT", "/orders?a=1&b=2", "42", "k", "body"), 201},
		{"another user", request("POST", "/orders?a=1&b=2", "43", "k", "body"), 201},
		{"another key", request("POST", "/orders?a=1&b=2", "42", "K", "body"), 201},
		{"scope and key that give the same text", request("POST", "/orders?a=1&b=2", "4", "2k", "body"), 201},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, lock.NewMemory())
			h := once(l)(http.HandlerFunc(created))
			require.Equal(t, 201, serve(h, request("POST", "/orders?a=1&b=2", "42", "k", "body")).Code)
			w := serve(h, tt.r)
			if tt.want == 200 {
				require.Equal(t, 201, w.Code)
				require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
				return
			}
			require.Empty(t, w.Header().Get("Idempotent-Replayed"))
			require.Equal(t, tt.want, w.Code)
		})
	}
}

func TestWithFingerprint(t *testing.T) {
	t.Parallel()
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l, latch.WithFingerprint(keyfunc.JSON("/sku")))(http.HandlerFunc(e.answer))
	first := serve(h, keyedBody("k", `{"sku":"x","sent":"10:00"}`))
	requireReplay(t, first, serve(h, keyedBody("k", `{"sent":"10:01","sku":"x"}`)))
	requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, serve(h, keyedBody("k", `{"sku":"y"}`)))
	e.require(t, 1)

	skips := once(l, latch.WithFingerprint(keyfunc.Optional(keyfunc.JSON("/sku"))))(http.HandlerFunc(e.answer))
	require.Empty(t, serve(skips, keyedBody("k", `{}`)).Header().Get("Idempotent-Replayed"))
	e.require(t, 1)
	requireReplay(t, serve(skips, keyedBody("k2", `{}`)), serve(skips, keyedBody("k2", `{}`)))
	e.require(t, 2)
}

// TestMismatchComesFirst: a different request is refused as such while the first one
// runs, after it, and after it was abandoned.
func TestMismatchComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &stubStore{Store: lock.NewMemory()}
		here, there := lock.New(store), lock.New(store)
		t.Cleanup(func() { end(here); end(there) })
		var e effects
		differs := func(l *lock.Locker) {
			t.Helper()
			requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, serve(once(l)(mustNotRun(t)), keyedBody("k", "other")))
		}
		h := once(here)(e.then(func(http.ResponseWriter, *http.Request) {
			differs(here)
			differs(there)
			requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(once(here)(mustNotRun(t)), keyed("k")))
			requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(once(there)(mustNotRun(t)), keyed("k")))
		}))
		serve(h, keyed("k"))
		differs(here)
		differs(there)
		e.require(t, 1)
	})
}
