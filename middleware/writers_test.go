package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
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

// pastTheGuard lets h write to the writer that chi's loggers pass on, and not to the writer of the
// guard. Adapters of frameworks do that.
func pastTheGuard(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := chimw.NewWrapResponseWriter(w, r.ProtoMajor)
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h(outer, r) })).ServeHTTP(outer, r)
	})
}

// TestAnswerPastTheGuard: an answer that a handler has written past its guard is not recorded as an
// empty 200.
func TestAnswerPastTheGuard(t *testing.T) {
	t.Parallel()
	tests := []struct{ status, again, runs int }{{201, 409, 1}, {422, 409, 1}, {500, 500, 2}, {429, 429, 2}}
	for _, tt := range tests {
		var out bytes.Buffer
		var e effects
		l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
		h := pastTheGuard(once(l), e.then(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, "past")
		}))
		first := serve(h, keyed("k"))
		require.Equal(t, tt.status, first.Code)
		require.Equal(t, "past", first.Body.String())
		again := serve(h, keyed("k"))
		require.Equal(t, tt.again, again.Code)
		if tt.again == 409 {
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, again)
		}
		e.require(t, int64(tt.runs))
		requireLine(t, &out, "ERROR", "idempotent", "a framework outside of the guard has answered")
	}
}

// TestFailurePastALock starts no cool-down.
func TestFailurePastALock(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]int{500: 500, 201: 429} {
		var out bytes.Buffer
		l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
		h := pastTheGuard(latch.Lock(l, "user", byUser, latch.WithCooldown(time.Minute)),
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		require.Equal(t, status, serve(h, keyed("")).Code)
		require.Equal(t, again, serve(h, keyed("")).Code)
		requireLine(t, &out, "ERROR", "user", "a framework outside of the guard has answered")
	}
}

// TestSilentHandler: an empty 200 is an answer, also if it is implied. It is logged once, since
// it may not have been meant.
func TestSilentHandler(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler http.HandlerFunc
		logged  bool
	}{
		"nothing":        {func(http.ResponseWriter, *http.Request) {}, true},
		"a status":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, false},
		"a header":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/orders/1") }, false},
		"an empty write": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			var e effects
			l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
			h := chimw.Logger(once(l)(e.then(tt.handler))) // whose writer sees that nothing was written
			requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
			serve(h, keyed("another"))
			e.require(t, 2)
			if !tt.logged {
				require.Empty(t, out.String())
				return
			}
			requireLine(t, &out, "WARN", "idempotent", "which is an empty 200")
		})
	}
}

// servePipes serves h as startServer does, over connections on which synctest
// can wait, for any URL.
func servePipes(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(p) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
}

// pipes is a listener that is dialled without a network.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
