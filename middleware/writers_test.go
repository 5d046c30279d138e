package middleware_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
)

// TestResponseController: all its methods work through the guard.
func TestResponseController(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	server := startServer(t, once(l)(e.then(func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		require.NoError(t, rc.SetReadDeadline(time.Now().Add(time.Hour)))
		require.NoError(t, rc.SetWriteDeadline(time.Now().Add(time.Hour)))
		require.NoError(t, rc.EnableFullDuplex())
		_, _ = io.WriteString(w, "ok")
	})))
	for _, replayed := range []string{"", "true"} {
		got := over(t.Context(), t, server, keyed("k"))
		require.Equal(t, "ok", string(got.body))
		require.Equal(t, replayed, got.header.Get("Idempotent-Replayed"))
	}
	e.require(t, 1)
}

// TestServeContent, and with it io.Copy from files, which looks for shortcuts.
func TestServeContent(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "receipt.txt")
	content := bytes.Repeat([]byte("receipt "), 10_000)
	require.NoError(t, os.WriteFile(name, content, 0o600))
	handlers := map[string]http.HandlerFunc{
		"ServeContent": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "receipt.txt", time.Unix(1, 0), bytes.NewReader(content))
		},
		"ServeFile": func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) },
		"io.Copy of a file": func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(name)
			require.NoError(t, err)
			defer func() { _ = f.Close() }()
			_, err = io.Copy(w, f)
			require.NoError(t, err)
		},
	}
	for kind, handler := range handlers {
		for _, header := range []string{"", "Range", "If-Modified-Since"} {
			t.Run(kind+" "+header, func(t *testing.T) {
				t.Parallel()
				l := newLocker(t, memstore.New())
				var e effects
				bare, guarded := startServer(t, handler), startServer(t, once(l)(e.then(handler)))
				request := func() *http.Request {
					r := keyed("k")
					switch header {
					case "Range":
						r.Header.Set(header, "bytes=100-20000")
					case "If-Modified-Since":
						r.Header.Set(header, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
					}
					return r
				}
				want := over(t.Context(), t, bare, request())
				require.Equal(t, want, over(t.Context(), t, guarded, request()))
				got := over(t.Context(), t, guarded, request())
				got.header.Del("Idempotent-Replayed")
				require.Equal(t, want, got)
				e.require(t, 1)
			})
		}
	}
}

// TestCompress mounts a compressing middleware on both sides. Outside, every
// client gets the coding it asks for; inside, all get the coding of the first.
func TestCompress(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("compress me ", 1000)
	handler := func(e *effects) http.Handler {
		return e.then(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, text)
		})
	}
	compress := chimw.Compress(5)
	for name, wrap := range map[string]func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler{
		"outside": func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler { return compress(guard(h)) },
		"inside":  func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler { return guard(compress(h)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			l := newLocker(t, memstore.New())
			server := startServer(t, wrap(once(l), handler(&e)))
			bare := startServer(t, compress(handler(new(effects))))
			ask := func(server *httptest.Server, coding string) exchange {
				r := clientRequest(t, server.URL, "k")
				r.Header.Set("Accept-Encoding", coding)
				res, err := server.Client().Do(r)
				require.NoError(t, err)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				res.Header.Del("Date")
				return exchange{res.StatusCode, res.Header, body, 0, nil}
			}
			want := ask(bare, "gzip")
			require.Equal(t, "gzip", want.header.Get("Content-Encoding"))
			require.Equal(t, want, ask(server, "gzip"))
			again := ask(server, "gzip")
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			again.header.Del("Idempotent-Replayed")
			require.Equal(t, want, again)
			plain := ask(server, "identity")
			if name == "outside" {
				require.Equal(t, text, string(plain.body))
			} else {
				require.Equal(t, want.body, plain.body)
				require.Equal(t, "gzip", plain.header.Get("Content-Encoding"), "and says so")
			}
			e.require(t, 1)
		})
	}
}

// TestTimeoutHandlerInside: an answer in time is kept as any other, and the
// timeout's own 503 is not.
func TestTimeoutHandlerInside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memstore.New())
		var e effects
		h := once(l)(http.TimeoutHandler(e.then(func(w http.ResponseWriter, r *http.Request) {
			if e.n.Load() == 1 {
				<-r.Context().Done() // derived from the run's, with the timeout
				return
			}
			w.Header().Set("X-Own", "1")
			w.WriteHeader(201)
		}), 20*time.Millisecond, "too late"))
		require.Equal(t, 503, serve(h, keyed("k")).Code)
		first := serve(h, keyed("k"))
		require.Equal(t, 201, first.Code)
		requireReplay(t, first, serve(h, keyed("k")))
		e.require(t, 2)
	})
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
