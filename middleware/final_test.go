package middleware_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestFinalPolicy says which answers are kept, in addition to the rows of docs/evidence/semantics.md.
func TestFinalPolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status       int
		commit, kept bool
	}{
		{302, false, true},
		{302, true, true},
		{507, false, false},
		{507, true, true},
		{403, true, true},
		{408, true, true},
		{425, true, true},
		{502, true, true},
		{503, true, true},
	} {
		l := newLocker(t, memstore.New())
		var e effects
		h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
			if tt.commit {
				require.NoError(t, lock.Commit(r.Context()))
			}
			w.Header().Set("Content-Type", "text/x-own")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, "own answer")
		}))
		first := serve(h, keyed("k"))
		require.Equal(t, tt.status, first.Code)
		require.Equal(t, "text/x-own", first.Header().Get("Content-Type"))
		again := serve(h, keyed("k"))
		if tt.kept {
			requireReplay(t, first, again)
			e.require(t, 1)
			continue
		}
		require.Equal(t, first.Result().Header, again.Result().Header, "%d runs again", tt.status)
		require.Equal(t, first.Body, again.Body)
		e.require(t, 2)
	}
}

// TestPanicLeavesNoHeaders: the code that answers instead finds no header of
// the handler.
func TestPanicLeavesNoHeaders(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		l := newLocker(t, memstore.New())
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

// A guard around a panicking WithFinal / key function.
func TestFinalPanics(t *testing.T) {
	l := newLocker(t, memstore.New())
	var e effects
	h := once(l, latch.WithFinal(func(int) bool { panic("final") }))(http.HandlerFunc(e.answer))
	require.Panics(t, func() { serve(h, keyed("k")) })
	require.Panics(t, func() { serve(h, keyed("k")) })
	e.require(t, 2)
}
