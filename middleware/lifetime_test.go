package middleware_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const lifetimeHeader = "Idempotency-Key-Lifetime"

// TestLifetimeHeader: each answer of a remembered key says for how long, and no other answer
// does.
func TestLifetimeHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e effects
		next := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(lifetimeHeader, "of the handler") // a service behind a gateway may have its own guard
			w.WriteHeader(http.StatusCreated)
		}
		h := once(newLocker(t, memstore.New(), lock.WithKeep(time.Hour)), latch.WithLifetimeHeader())(e.then(func(w http.ResponseWriter, r *http.Request) {
			next(w, r)
		}))
		says := func(key string) string { return serve(h, keyed(key)).Header().Get(lifetimeHeader) }
		require.Equal(t, "3600", says("k"))
		time.Sleep(30*time.Minute + 100*time.Millisecond)
		require.Equal(t, "1799", says("k"), "the second that has begun does not count")
		time.Sleep(30*time.Minute - time.Second)
		require.Empty(t, says("k"), "less than one")
		require.Empty(t, serve(h, keyedBody("k", "other")).Header().Get(lifetimeHeader), "refused")
		time.Sleep(time.Second)
		require.Equal(t, "3600", says("k"), "a new request")
		e.require(t, 2)

		next = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		require.Empty(t, says("not kept"))
		next = func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }
		require.Equal(t, "3600", says("stream"))
		require.Equal(t, "3600", says("stream"))
	})
}

// TestNoLifetimeHeader: there is no header without the option, nor in a run without the store.
func TestNoLifetimeHeader(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
	for range 2 {
		require.NotContains(t, serve(h, keyed("k")).Header(), lifetimeHeader)
	}
	var down atomic.Bool
	down.Store(true)
	open := once(newLocker(t, flakyStore(&down, lock.ErrNotApplied), lock.WithLogger(quiet)), latch.WithLifetimeHeader(), latch.WithFailOpen())
	w := serve(open(http.HandlerFunc(created)), keyed("k"))
	require.Equal(t, 201, w.Code)
	require.NotContains(t, w.Header(), lifetimeHeader)
}
