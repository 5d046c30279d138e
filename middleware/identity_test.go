package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// TestKeySyntax: the syntax of the header is checked before any claim. The rows of
// docs/evidence/semantics.md are headers as net/http sends them.
func TestKeySyntax(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(mustNotRun(t))
	for _, line := range []string{strings.Repeat("k", 1<<20), "a\x01"} {
		r := keyed("")
		r.Header["Idempotency-Key"] = []string{line}
		requireProblem(t, wantProblem{status: 400, kind: "key-invalid"}, serve(h, r))
	}
}

// TestQueriesThatDiffer: another query is another request, in addition to the rows of
// docs/evidence/semantics.md.
func TestQueriesThatDiffer(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"one value more": "a=1&b=2&b=3", "does not parse": "a=1&b=2&%zz"} {
		h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
		first, other := keyed("k"), keyed("k")
		first.URL.RawQuery, other.URL.RawQuery = "a=1&b=2", query
		require.Equal(t, 201, serve(h, first).Code)
		require.Equal(t, 422, serve(h, other).Code, name)
	}
}

// TestMismatchComesFirst: a different request is refused as such while the first one
// runs, after it, and after it was abandoned.
func TestMismatchComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &stubStore{Store: memstore.New()}
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
