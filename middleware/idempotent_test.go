package middleware_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// once guards as most routes would.
func once(l *lock.Locker, opts ...latch.IdempotentOption) func(http.Handler) http.Handler {
	return latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, opts...)
}

// effects counts the effects of a handler.
type effects struct{ n atomic.Int64 }

// then counts, and lets f answer.
func (e *effects) then(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e.n.Add(1)
		f(w, r)
	}
}

// answers says which run it was.
func (e *effects) answer(w http.ResponseWriter, _ *http.Request) {
	n := e.n.Add(1)
	w.Header().Set("Location", "/orders/"+itoa(n))
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "order "+itoa(n))
}

func (e *effects) require(t *testing.T, want int64) {
	t.Helper()
	require.Equal(t, want, e.n.Load(), "effects")
}

func itoa(n int64) string { return string(rune('0' + n)) }

func requireReplay(t *testing.T, first, again *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, first.Code, again.Code)
	require.Equal(t, first.Body.Bytes(), again.Body.Bytes())
	header := again.Result().Header.Clone()
	require.Equal(t, []string{"true"}, header["Idempotent-Replayed"])
	header.Del("Idempotent-Replayed")
	require.Equal(t, first.Result().Header, header)
}

// exchange is an answer as it came over a connection.
type exchange struct {
	status int
	header http.Header
	body   []byte
	length int64
	coding []string
}

func over(ctx context.Context, t *testing.T, server *httptest.Server, r *http.Request) exchange {
	t.Helper()
	out, err := http.NewRequestWithContext(ctx, r.Method, server.URL+r.URL.RequestURI(), r.Body)
	require.NoError(t, err)
	out.Header = r.Header
	out.Header.Set("Accept-Encoding", "identity")        // Go's client would unpack it
	res, err := server.Client().Transport.RoundTrip(out) // which follows no redirects
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	res.Header.Del("Date")
	return exchange{res.StatusCode, res.Header, body, res.ContentLength, res.TransferEncoding}
}

// TestReplayIsEqual compares answers as clients see them: of the bare handler, of the first request
// through the guard, and of its repeats. Other answers are rows of docs/evidence/semantics.md.
func TestReplayIsEqual(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = zw.Write(bytes.Repeat([]byte("squeeze"), 1000))
	require.NoError(t, zw.Close())
	for name, handler := range map[string]http.HandlerFunc{
		"gzip, no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		},
		"304 with a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1234")
			w.WriteHeader(http.StatusNotModified)
		},
		"sniffed over 512": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE html>"+strings.Repeat("\x00\x01", 4000))
		},
		"in pieces, first sniffed alone": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<")
			_, _ = io.WriteString(w, "!DOCTYPE html>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			l := newLocker(t, memstore.New())
			bare := startServer(t, handler)
			guarded := startServer(t, once(l)(e.then(handler)))
			want := over(t.Context(), t, bare, keyed("k"))
			require.Equal(t, want, over(t.Context(), t, guarded, keyed("k")), "the first answer is that of the handler")
			for range 3 {
				got := over(t.Context(), t, guarded, keyed("k"))
				require.Equal(t, []string{"true"}, got.header["Idempotent-Replayed"])
				delete(got.header, "Idempotent-Replayed")
				require.Equal(t, want, got)
			}
			e.require(t, 1)
		})
	}
}

// TestEarlyHintsPassAtOnce, and are not kept.
func TestEarlyHintsPassAtOnce(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var order []string
	w := &spyWriter{header: http.Header{"X-Outer": {"o"}}, on: func(status int, h http.Header) {
		order = append(order, http.StatusText(status)+" "+h.Get("Link")+h.Get("X-Outer"))
	}}
	once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		order = append(order, "still running")
		w.Header().Del("Link")
		w.WriteHeader(200)
		order = append(order, "returns")
	})).ServeHTTP(w, keyed("k"))
	require.Equal(t, []string{"Early Hints </a>o", "still running", "returns", "OK o"}, order)
}

type spyWriter struct {
	header http.Header
	on     func(status int, h http.Header)
}

func (s *spyWriter) Header() http.Header         { return s.header }
func (s *spyWriter) WriteHeader(status int)      { s.on(status, s.header) }
func (s *spyWriter) Write(p []byte) (int, error) { return len(p), nil }

// TestHeadersThatAreNotKept are for the first client, or its connection, alone.
func TestHeadersThatAreNotKept(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	private := []string{
		"Set-Cookie", "Set-Cookie2", "Authorization", "WWW-Authenticate", "Proxy-Authenticate", "Proxy-Authentication-Info",
		"Proxy-Connection", "Authentication-Info", "Date", "Keep-Alive", "TE", "Upgrade", "X-Hop", "X-Hop-Too", "Connection",
	}
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range private {
			w.Header().Set(name, "secret")
		}
		w.Header()["set-cookie"] = []string{"secret"} // spelled past Header.Set
		w.Header()["Connection"] = []string{"X-Hop, x-hop-too", "close"}
		w.Header().Set("X-Kept", "1")
		w.WriteHeader(http.StatusCreated)
	}))
	first := serve(h, keyed("k"))
	for _, name := range private {
		require.NotEmpty(t, first.Header()[http.CanonicalHeaderKey(name)], "the first client gets %s", name)
	}
	again := serve(h, keyed("k"))
	require.Equal(t, http.Header{"X-Kept": {"1"}, "Idempotent-Replayed": {"true"}}, again.Result().Header)
}

// An optional part of the fingerprint takes the whole protection away.
func TestFingerprintSkip(t *testing.T) {
	l := newLocker(t, memstore.New())
	var e effects
	h := once(l, latch.WithFingerprint(keyfunc.Join(keyfunc.JSON("/a"), keyfunc.Optional(keyfunc.JSON("/b")))))(http.HandlerFunc(e.answer))
	for range 3 {
		serve(h, keyedBody("k", `{"a":"1"}`))
	}
	e.require(t, 1)
}
