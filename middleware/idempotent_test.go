package middleware_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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

// TestReplayIsEqual compares answers as clients see them: of the bare handler,
// of the first request through the guard, and of its repeats.
func TestReplayIsEqual(t *testing.T) {
	t.Parallel()
	write := func(status int, body []byte, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Add(header[i], header[i+1])
			}
			if status != 0 {
				w.WriteHeader(status)
			}
			if body != nil {
				_, _ = w.Write(body)
			}
		}
	}
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = zw.Write(bytes.Repeat([]byte("squeeze"), 1000))
	require.NoError(t, zw.Close())
	binary := make([]byte, 4096)
	for i := range binary {
		binary[i] = byte(i)
	}
	html := []byte("<!DOCTYPE html><p>ordered")
	tests := map[string]http.HandlerFunc{
		"JSON":                write(201, []byte(`{"id":7}`), "Content-Type", "application/json", "Location", "/orders/7"),
		"binary":              write(200, binary, "Content-Type", "application/octet-stream"),
		"nothing at all":      func(http.ResponseWriter, *http.Request) {},
		"empty 201":           write(201, nil),
		"gzip":                write(200, packed.Bytes(), "Content-Encoding", "gzip", "Content-Type", "text/plain"),
		"gzip, no type":       write(200, packed.Bytes(), "Content-Encoding", "gzip"),
		"204":                 write(204, nil, "ETag", `"7"`),
		"204 with a body":     write(204, []byte("ignored")),
		"303":                 write(303, nil, "Location", "/orders/7"),
		"304":                 write(304, nil, "ETag", `"7"`),
		"400":                 write(400, []byte("sku is missing"), "Content-Type", "text/plain"),
		"409 of its own":      write(409, []byte("sold out")),
		"1 MiB exactly":       write(200, bytes.Repeat([]byte("m"), 1<<20)),
		"multi-value headers": write(200, []byte("x"), "Link", "</a>", "Link", "</b>", "Vary", "Accept", "X-Empty", ""),
		"sniffed HTML":        write(0, html),
		"sniffed over 512":    write(0, append(html, bytes.Repeat([]byte("\x00\x01"), 4000)...)),
		"sniffing turned off": func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; _, _ = w.Write(html) },
		"implicit 200":        write(0, []byte("ok")),
		"Content-Length":      write(200, bytes.Repeat([]byte("l"), 5000), "Content-Length", "5000"),
		"more than announced": write(200, []byte("12345"), "Content-Length", "5", "X-More", "no"),
		"headers set too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			w.Header().Set("X-Late", "1")
			_, _ = io.WriteString(w, "ok")
			w.WriteHeader(500)
		},
		"in pieces, first sniffed alone": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<")
			_, _ = io.WriteString(w, "!DOCTYPE html>")
		},
		"early hints": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("X-Final", "yes")
			_, _ = io.WriteString(w, "ok")
		},
	}
	for name, handler := range tests {
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

// TestHeadersOfOuterMiddleware: a repeat has the headers of its own request, and not of the
// recorded request.
func TestHeadersOfOuterMiddleware(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var n int64
	guarded := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		require.Equal(t, "1", h.Get("X-Request-ID"), "the handler sees them")
		h.Set("X-Frame-Options", "DENY") // as it was
		h.Add("Vary", "Accept")
		h.Set("Cache-Control", "private")
		h.Del("X-Removed")
		h.Set("X-Own", "1")
		_, _ = io.WriteString(w, "ok")
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("X-Request-ID", itoa(n))
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Removed", "1")
		if n > 1 {
			w.Header().Set("X-Frame-Options", "SAMEORIGIN")
		}
		guarded.ServeHTTP(w, r)
	})
	want := http.Header{
		"X-Request-Id": {"1"}, "X-Frame-Options": {"DENY"}, "Vary": {"Origin", "Accept"}, "Cache-Control": {"private"},
		"X-Own": {"1"}, "Content-Type": {"text/plain; charset=utf-8"},
	}
	require.Equal(t, want, serve(h, keyed("k")).Result().Header)
	want.Set("X-Request-Id", "2")
	want.Set("X-Frame-Options", "SAMEORIGIN")
	want.Set("Idempotent-Replayed", "true")
	got := serve(h, keyed("k")).Result().Header
	delete(got, "X-Removed") // removed by a nil value, which is not sent
	require.Equal(t, want, got)
}

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

func TestSafeMethodsPassAll(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY", "PROPFIND", "REPORT", "SEARCH"} {
		r := keyed("k")
		r.Method = method
		w := httptest.NewRecorder()
		handler := e.then(func(got http.ResponseWriter, gotRequest *http.Request) {
			require.Same(t, w, got)
			require.Same(t, r, gotRequest)
		})
		once(l)(handler).ServeHTTP(w, r)
		latch.Dedupe(l, byUser, 1)(handler).ServeHTTP(w, r)
	}
	e.require(t, 16)
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
