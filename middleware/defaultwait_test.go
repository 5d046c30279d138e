package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// A repeat that waits for another process knows of the first run, so it does not run unprotected
// when the store fails meanwhile.
func TestWaitingRepeatDoesNotFailOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		store := flakyStore(&down, lock.ErrNotApplied)
		var e effects
		handlers := make([]http.Handler, 2)
		for i := range handlers {
			handlers[i] = once(newLocker(t, store, lock.WithLogger(quiet)), latch.WithFailOpen())(e.then(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second)
				created(w, r)
			}))
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- serve(handlers[0], keyed("k")) }()
		synctest.Wait()
		time.AfterFunc(2*time.Second, func() { down.Store(true) })
		time.AfterFunc(4*time.Second, func() { down.Store(false) })
		requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(handlers[1], keyed("k")))
		require.Equal(t, 201, (<-first).Code)
		e.require(t, 1)
	})
}
