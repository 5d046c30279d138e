package middleware_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// streamsOrFails streams if it can, and otherwise fails.
func streamsOrFails(w http.ResponseWriter, _ *http.Request) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		http.Error(w, "no stream", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "streamed")
}

// The writer of http.TimeoutHandler cannot flush. A flush inside of it fails and sends nothing: no cool-down
// begins, and no answer.
func TestFailedFlushIsNoAnswer(t *testing.T) {
	t.Parallel()
	cool := func(l *lock.Locker) func(http.Handler) http.Handler {
		return latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour))
	}
	for name, guards := range map[string]func(l *lock.Locker, h http.Handler) http.Handler{
		"Lock":               func(l *lock.Locker, h http.Handler) http.Handler { return cool(l)(h) },
		"Idempotent in Lock": func(l *lock.Locker, h http.Handler) http.Handler { return cool(l)(once(l)(h)) },
		"Lock in Idempotent": func(l *lock.Locker, h http.Handler) http.Handler { return once(l)(cool(l)(h)) },
		"Idempotent in Dedupe": func(l *lock.Locker, h http.Handler) http.Handler {
			return latch.Dedupe(l, byUser, time.Hour)(once(l)(h))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			h := http.TimeoutHandler(guards(l, http.HandlerFunc(streamsOrFails)), time.Minute, "")
			require.Equal(t, http.StatusInternalServerError, serve(h, keyed("k")).Code)
			free := http.TimeoutHandler(guards(l, http.HandlerFunc(created)), time.Minute, "")
			require.Equal(t, http.StatusCreated, serve(free, keyed("k")).Code)
		})
	}
}
