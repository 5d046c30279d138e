package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestResponseController: all its methods work through the guards.
func TestResponseController(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newLocker(t, memstore.New(), logging(&out))
	for name, guard := range map[string]guardFunc{
		"Idempotent":               once(l),
		"Lock with a cool-down":    latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour)),
		"such a Lock inside of it": nest(once(newLocker(t, memstore.New())), latch.Lock(l, "order", byUser, latch.WithCooldown(time.Hour))),
	} {
		failed := make(chan error, 1) // a server does not wait for a connection that was taken over
		var err error
		h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			inAnHour := time.Now().Add(time.Hour)
			err = errors.Join(rc.SetReadDeadline(inAnHour), rc.SetWriteDeadline(inAnHour), rc.EnableFullDuplex())
			conn, _, hijacked := w.(http.Hijacker).Hijack()
			if err = errors.Join(err, hijacked); err == nil {
				_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				err = errors.Join(err, conn.Close())
			}
		}))
		server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r); failed <- err }))
		require.Equal(t, 200, over(t, server, keyed("k")).status, name)
		require.NoError(t, <-failed, name)
	}
	require.Empty(t, out.String(), "a connection that was taken over is an answer")
}

// TestInvalidStatusPanicsAtOnce, as without the guard, and not when it is too late to answer otherwise.
func TestInvalidStatusPanicsAtOnce(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.Panics(t, func() { w.WriteHeader(0) })
		require.Panics(t, func() { w.WriteHeader(1000) })
		w.WriteHeader(204)
		_, err := w.Write([]byte("x"))
		require.ErrorIs(t, err, http.ErrBodyNotAllowed)
	}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
}

// A Content-Length that is of another body must not make a whole answer of pieces, which would be kept as one.
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
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, err := io.WriteString(w, "ok")
		require.NoError(t, err)
		_, err = w.Write([]byte("!"))
		require.ErrorIs(t, err, http.ErrContentLength)
	}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
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

// pastTheGuard lets h write to the writer that chi's loggers pass on, as adapters of frameworks do, past the guard's.
func pastTheGuard(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := chimw.NewWrapResponseWriter(w, r.ProtoMajor)
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h(outer, r) })).ServeHTTP(outer, r)
	})
}

// TestFailurePastALock starts no cool-down.
func TestFailurePastALock(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]int{500: 500, 201: 429} {
		var out bytes.Buffer
		h := pastTheGuard(latch.Lock(newLocker(t, memstore.New(), logging(&out)), "user", byUser, latch.WithCooldown(time.Minute)),
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		require.Equal(t, status, serve(h, keyed("")).Code)
		require.Equal(t, again, serve(h, keyed("")).Code)
		requireLine(t, &out, "ERROR", "user", "a framework outside of the guard has answered")
	}
}

// An empty 200 is an answer, also if it is implied. It is logged once, since it may not have been meant.
func TestSilentHandler(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		logged  bool
	}{
		"nothing":        {func(http.ResponseWriter, *http.Request) {}, true},
		"a status":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, false},
		"a header":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/orders/1") }, false},
		"an empty write": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, false},
	} {
		var out bytes.Buffer
		var e effects
		h := chimw.Logger(once(newLocker(t, memstore.New(), logging(&out)))(e.then(tt.handler))) // whose writer sees that nothing was written
		requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
		serve(h, keyed("another"))
		e.require(t, 2)
		if tt.logged {
			requireLine(t, &out, "WARN", "idempotent", "which is an empty 200")
		} else {
			require.Empty(t, out.String(), name)
		}
	}
}

// servePipes serves h as startServer does, over connections on which synctest can wait, for any URL.
func servePipes(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	p := make(pipes)
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
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

func (p pipes) Accept() (net.Conn, error) {
	if conn, is := <-p; is {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// The function of WithReplay refuses or changes a replay, and the record stays.
func TestWithReplay(t *testing.T) {
	t.Parallel()
	var hook func(r *http.Request, a *latch.Answer) error
	runs := 0
	h := once(newLocker(t, memstore.New()), latch.WithReplay(func(r *http.Request, a *latch.Answer) error { return hook(r, a) }))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("order 1"))
		}))
	hook = func(*http.Request, *latch.Answer) error { return errors.New("called for the first answer") }
	require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)

	unchanged := func() {
		t.Helper()
		hook = func(r *http.Request, a *latch.Answer) error { //nolint:unparam // it is a hook
			require.Equal(t, "42", r.Header.Get("X-User-ID"))
			require.Equal(t, &latch.Answer{Status: 201, Header: http.Header{"Location": {"/orders/1"}, "Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte("order 1")}, a)
			return nil
		}
		w := serve(h, keyed("k"))
		require.Equal(t, http.StatusCreated, w.Code)
		require.Equal(t, "order 1", w.Body.String())
		require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	}
	unchanged()

	hook = func(_ *http.Request, a *latch.Answer) error { //nolint:unparam // it is a hook
		copy(a.Body, "ORDER")
		a.Status = http.StatusOK
		a.Header.Del("Location")
		a.Header.Set("X-Adapted", "1")
		return nil
	}
	w := serve(h, keyed("k"))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "ORDER 1", w.Body.String())
	require.Equal(t, []string{"1"}, w.Header().Values("X-Adapted"))
	require.Empty(t, w.Header().Values("Location"))
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	unchanged()

	hook = func(_ *http.Request, a *latch.Answer) error {
		a.Status = 0
		return &keyfunc.Error{Status: http.StatusForbidden, Detail: "revoked"}
	}
	w = serve(h, keyed("k"))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), `"detail":"revoked"`)
	require.Equal(t, "refused", w.Header().Get("Latch-Problem"))
	require.Empty(t, w.Header().Values("Idempotent-Replayed"))
	require.NotContains(t, w.Body.String(), "order 1")

	for name, fails := range map[string]func(a *latch.Answer) error{
		"its own failure":        func(*latch.Answer) error { return errors.New("secret of the database") },
		"a status of no answer":  func(a *latch.Answer) error { a.Status = 100; return nil },
		"a header of no record":  func(a *latch.Answer) error { a.Header.Set("Set-Cookie", "s=1"); return nil },
		"a body of a bodyless":   func(a *latch.Answer) error { a.Status = http.StatusNoContent; return nil },
		"a refusal as an answer": func(a *latch.Answer) error { a.Status = 1000; return nil },
	} {
		hook = func(_ *http.Request, a *latch.Answer) error { return fails(a) }
		w = serve(h, keyed("k"))
		require.Equal(t, http.StatusInternalServerError, w.Code, name)
		require.NotContains(t, w.Body.String(), "secret", name)
		require.NotContains(t, w.Body.String(), "order 1", name)
		unchanged()
	}
	require.Equal(t, 1, runs)
}

// Two requests of an outer guard have one key behind an inner one. The second waits for the first, which
// fails, and a hook refuses or changes the answer of the first for the second. The outer guard keeps
// neither: no work was done, and the repeat of the second runs.
func TestFailureThatAHookHasChangedIsNotKeptOutside(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(r *http.Request, a *latch.Answer) error{
		"refused": func(*http.Request, *latch.Answer) error {
			return &keyfunc.Error{Status: http.StatusUnprocessableEntity, Err: errors.New("not yours")}
		},
		"changed": func(_ *http.Request, a *latch.Answer) error { a.Status = http.StatusUnprocessableEntity; return nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			l := newLocker(t, memstore.New())
			fail := make(chan struct{})
			h := latch.Idempotent(l, byUser, keyfunc.Header("X-Outer"))(once(l, latch.WithReplay(hook), latch.WithName("inner"))(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Outer") == "second" {
						w.WriteHeader(http.StatusCreated)
						return
					}
					<-fail
					w.WriteHeader(http.StatusInternalServerError)
				})))
			send := func(outer string) *httptest.ResponseRecorder {
				r := keyed("k")
				r.Header.Set("X-Outer", outer)
				return serve(h, r)
			}
			go send("first")
			synctest.Wait()
			second := make(chan *httptest.ResponseRecorder, 1)
			go func() { second <- send("second") }()
			synctest.Wait()
			close(fail)
			require.Equal(t, http.StatusUnprocessableEntity, (<-second).Code)
			require.Equal(t, http.StatusCreated, send("second").Code)
		})
	}
}
