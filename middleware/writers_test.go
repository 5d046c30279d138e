package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestResponseController: all its methods work through the guards.
func TestResponseController(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"Idempotent":            once(l),
		"Lock with a cool-down": latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour)),
	} {
		failed := make(chan error, 1) // a server does not wait for a connection that was taken over
		server := startServer(t, guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			inAnHour := time.Now().Add(time.Hour)
			err := errors.Join(rc.SetReadDeadline(inAnHour), rc.SetWriteDeadline(inAnHour), rc.EnableFullDuplex())
			conn, _, hijacked := rc.Hijack()
			if err = errors.Join(err, hijacked); err == nil {
				_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				err = errors.Join(err, conn.Close())
			}
			failed <- err
		})))
		require.Equal(t, 200, over(t.Context(), t, server, keyed("k")).status, name)
		require.NoError(t, <-failed, name)
	}
}

// TestInvalidStatusPanicsAtOnce, as without the guard, and not when it is too
// late to answer otherwise.
func TestInvalidStatusPanicsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	h := once(l)(e.then(func(w http.ResponseWriter, _ *http.Request) {
		require.Panics(t, func() { w.WriteHeader(0) })
		require.Panics(t, func() { w.WriteHeader(1000) })
		w.WriteHeader(204)
		_, err := w.Write([]byte("x"))
		require.ErrorIs(t, err, http.ErrBodyNotAllowed)
	}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
}

// TestNothingFollowsARefusedWrite: a Content-Length that is of another body must
// not make a whole answer of pieces, which would be kept as one.
func TestNothingFollowsARefusedWrite(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		for _, piece := range []string{`{"order":`, `"tea"`, `}`} {
			_, _ = io.WriteString(w, piece)
		}
	}))
	require.Equal(t, `{"order":`, serve(h, keyed("k")).Body.String(), "which the client sees to be cut off")
	requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
}

// TestMoreThanAnnounced: the writer says so, as net/http does.
func TestMoreThanAnnounced(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, err := io.WriteString(w, "ok")
		require.NoError(t, err)
		_, err = w.Write([]byte("!"))
		require.ErrorIs(t, err, http.ErrContentLength)
	}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
}

// Keep the writer, write after return.
func TestWriteAfterReturn(t *testing.T) {
	l := newLocker(t, memstore.New())
	var keep http.ResponseWriter
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "first")
		keep = w
	}))
	require.Equal(t, "first", serve(h, keyed("k")).Body.String())
	_, _ = io.WriteString(keep, "AFTER")
	keep.Header().Set("Location", "/evil")
	w := serve(h, keyed("k"))
	require.Equal(t, "first", w.Body.String())
	require.Empty(t, w.Header().Get("Location"))
}

// A wrapped writer of another library hid http.Flusher and http.Hijacker.
func TestWriterHidesNoInterfaces(t *testing.T) {
	t.Parallel()
	serve(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.Implements(t, (*http.Flusher)(nil), w)
		require.Implements(t, (*http.Hijacker)(nil), w)
		require.Implements(t, (*io.StringWriter)(nil), w)
		require.Implements(t, (*interface{ Unwrap() http.ResponseWriter })(nil), w)
		_, reads := w.(io.ReaderFrom)
		require.False(t, reads, "it would go past the record")
	})), keyed("k"))
}
