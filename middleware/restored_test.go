package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// seen is a handler's view of a request's body.
type seen struct {
	body     string
	err      string
	length   int64
	coding   []string
	trailers http.Header
	getBody  bool
	isNil    bool
	none     bool
}

func look(r *http.Request) seen {
	s := seen{length: r.ContentLength, coding: r.TransferEncoding, getBody: r.GetBody != nil, isNil: r.Body == nil, none: r.Body == http.NoBody}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		s.body, s.err = string(body), fmt.Sprint(err)
		_ = r.Body.Close()
	}
	s.trailers = r.Trailer
	return s
}

// TestRequestIsRestored compares the requests that a handler gets with and
// without the guard, over a connection.
func TestRequestIsRestored(t *testing.T) {
	t.Parallel()
	const head = "POST /orders HTTP/1.1\r\nHost: x\r\nX-User-ID: 42\r\nIdempotency-Key: k\r\nConnection: close\r\n"
	for name, tt := range map[string]struct{ raw, body string }{
		"body":                {head + "Content-Length: 5\r\n\r\n12345", "12345"},
		"no body":             {head + "\r\n", ""},
		"Content-Length 0":    {head + "Content-Length: 0\r\n\r\n", ""},
		"chunked":             {head + "Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n2\r\n45\r\n0\r\n\r\n", "12345"},
		"chunked and empty":   {head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
		"announced trailers":  {head + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n123\r\n0\r\nX-Sum: 7\r\n\r\n", "123"},
		"unannounced trailer": {head + "Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n0\r\nX-Sum: 7\r\n\r\n", "123"},
		"at the limit":        {head + "Content-Length: 100\r\n\r\n" + strings.Repeat("b", 100), strings.Repeat("b", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			found := make(chan seen, 1)
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { found <- look(r) })
			bare := startServer(t, handler)
			guards := []func(http.Handler) http.Handler{
				once(l, latch.WithBodyLimits(100, 100)), latch.Lock(l, "user", byUser, latch.WithBodyFirst(100)),
			}
			require.Contains(t, sendRaw(t, bare, tt.raw), "200 OK")
			bareSeen := <-found
			require.Equal(t, tt.body, bareSeen.body)
			for _, guard := range guards {
				require.Contains(t, sendRaw(t, startServer(t, guard(handler)), tt.raw), "200 OK")
				require.Equal(t, bareSeen, <-found)
			}
		})
	}
}

func sendRaw(t *testing.T, server *httptest.Server, raw string) string {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, raw)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(answer)
}

// TestNilBody: requests that were made by hand may have none.
func TestNilBody(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := keyed("k")
		r.Body, r.ContentLength = body, 0
		want := look(r)
		serve(once(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { require.Equal(t, want, look(r)) })), r)
	}
}

// TestRequestOfCallerIsUntouched: outer middleware goes on using it.
func TestRequestOfCallerIsUntouched(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	r := keyed("k")
	ctx, body := r.Context(), r.Body
	serve(once(l)(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		require.NotSame(t, r, got)
		got.Body = nil
	})), r)
	require.Equal(t, ctx, r.Context())
	require.Equal(t, body, r.Body)
}

// TestRefusedBodyIsNotAskedFor: a client that waits for 100 gets its refusal instead.
func TestRefusedBodyIsNotAskedFor(t *testing.T) {
	t.Parallel()
	server := startServer(t, once(newLocker(t, memstore.New()), latch.WithBodyLimits(4, 100))(mustNotRun(t)))
	for answer, sent := range map[string]string{"413": "Idempotency-Key: k\r\nContent-Length: 5", "400": "Idempotency-Key: a,b\r\nContent-Length: 4"} {
		raw := "POST / HTTP/1.1\r\nHost: x\r\nX-User-ID: 42\r\nExpect: 100-continue\r\nConnection: close\r\n" + sent + "\r\n\r\n"
		require.Regexp(t, "^HTTP/1.1 "+answer, sendRaw(t, server, raw))
	}
}

func TestKeyFunctionOwnsItsRequest(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	fromBody := func(r *http.Request) (string, error) {
		b, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(b))
		return string(b), err
	}
	for name, key := range map[string]keyfunc.Func{
		"guarded": fromBody,
		"skipped": func(r *http.Request) (string, error) {
			if _, err := fromBody(r); err != nil {
				return "", err
			}
			return "", keyfunc.ErrSkip
		},
	} {
		var got string
		r := post("42")
		body := r.Body
		serve(latch.Lock(l, "body", key)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			got = string(b)
		})), r)
		require.Equal(t, `{"sku":"x"}`, got, name)
		require.Equal(t, body, r.Body, "%s: the caller's request is unchanged", name)
	}
}
