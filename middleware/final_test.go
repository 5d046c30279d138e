package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestPanicLeavesNoHeaders: the code that answers instead does so as if
// nothing had been written.
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
