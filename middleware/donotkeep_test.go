package middleware_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// passing answers 202 and says, on its first run, that this is not its last word.
func passing(e *effects, say func(ctx context.Context)) http.HandlerFunc {
	return e.then(func(w http.ResponseWriter, r *http.Request) {
		if e.n.Load() == 1 {
			say(r.Context())
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "run "+itoa(e.n.Load()))
	})
}

// TestDoNotKeepWithoutAnAnswer leaves the answer to outer middleware, and waiters get no empty 200.
func TestDoNotKeepWithoutAnAnswer(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var e effects
		guarded := once(newLocker(t, memstore.New(), lock.WithWait(time.Minute)))(e.then(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Tries", "1")
			time.Sleep(time.Second)
			latch.DoNotKeep(r.Context())
		}))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guarded.ServeHTTP(w, r)
			http.Error(w, "outside", http.StatusBadGateway)
		})
		waiter := make(chan int)
		go func() {
			time.Sleep(time.Millisecond)
			waiter <- serve(guarded, keyed("k")).Code
		}()
		w := serve(h, keyed("k"))
		require.Equal(t, http.StatusBadGateway, w.Code)
		require.Equal(t, "outside\n", w.Body.String())
		require.Equal(t, "1", w.Header().Get("X-Tries"))
		require.Equal(t, http.StatusServiceUnavailable, <-waiter)
		e.require(t, 1)
	})
}

func TestDoNotKeepElsewhere(t *testing.T) {
	t.Parallel()
	latch.DoNotKeep(t.Context())
	var e effects
	var left context.Context
	h := once(newLocker(t, memstore.New()))(passing(&e, func(ctx context.Context) { left = ctx }))
	first := serve(h, keyed("k"))
	latch.DoNotKeep(left)
	requireReplay(t, first, serve(h, keyed("k")))
}
