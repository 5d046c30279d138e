package middleware_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// TestExpectContinue: the body of a request that is refused anyway is not
// asked for.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	server := startServer(t, once(l, latch.WithBodyLimits(4, 100))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	talk := func(length int, key string) (status string, conn net.Conn, answer *bufio.Reader) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nX-User-ID: 42\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", key, length)
		require.NoError(t, err)
		answer = bufio.NewReader(conn)
		status, err = answer.ReadString('\n')
		require.NoError(t, err)
		return status, conn, answer
	}
	status, _, _ := talk(5, "too-large")
	require.Contains(t, status, "413")
	status, _, _ = talk(4, "a,b")
	require.Contains(t, status, "400 Bad Request")

	status, conn, answer := talk(4, "good")
	require.Contains(t, status, "100 Continue")
	_, err := io.WriteString(conn, "1234")
	require.NoError(t, err)
	_, err = answer.ReadString('\n') // the end of the informational answer
	require.NoError(t, err)
	res, err := http.ReadResponse(answer, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "1234", string(body))
}

// TestMultipart: a form that is submitted again comes with a new boundary, and
// is the same request.
func TestMultipart(t *testing.T) {
	t.Parallel()
	type part struct{ name, file, kind, content string }
	form := func(boundary string, parts ...part) *http.Request {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		require.NoError(t, w.SetBoundary(boundary))
		for _, p := range parts {
			h := make(map[string][]string)
			disposition := fmt.Sprintf("form-data; name=%q", p.name)
			if p.file != "" {
				disposition += fmt.Sprintf("; filename=%q", p.file)
			}
			h["Content-Disposition"] = []string{disposition}
			if p.kind != "" {
				h["Content-Type"] = []string{p.kind}
			}
			out, err := w.CreatePart(h)
			require.NoError(t, err)
			_, err = io.WriteString(out, p.content)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		r := keyedBody("k", body.String())
		r.Header.Set("Content-Type", w.FormDataContentType())
		return r
	}
	raw := func(contentType, body string) *http.Request {
		r := keyedBody("k", body)
		r.Header.Set("Content-Type", contentType)
		return r
	}
	sku, file := part{"sku", "", "", "x"}, part{"photo", "a.png", "image/png", "bytes"}
	tests := []struct {
		name          string
		first, second *http.Request
		same          bool
	}{
		{"new boundary", form("one", sku, file), form("two", sku, file), true},
		{"the same", form("one", sku), form("one", sku), true},
		{"no parts", form("one"), form("two"), true},
		{"another value", form("one", sku, file), form("two", part{"sku", "", "", "y"}, file), false},
		{"another name", form("one", sku), form("two", part{"SKU", "", "", "x"}), false},
		{"another file name", form("one", file), form("two", part{"photo", "b.png", "image/png", "bytes"}), false},
		{"another type", form("one", file), form("two", part{"photo", "a.png", "image/gif", "bytes"}), false},
		{"another order", form("one", sku, file), form("two", file, sku), false},
		{"one part more", form("one", sku), form("two", sku, sku), false},
		{"one part cut in two", form("one", part{"a", "", "", "xy"}), form("two", part{"a", "", "", "x"}, part{"a", "", "", "y"}), false},
		{"cut off", form("one", sku), raw("multipart/form-data; boundary=one", "--one\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nx"), false},
		{"part without an end of its header", raw("multipart/form-data; boundary=one", "--one\r\nnonsense"), raw("multipart/form-data; boundary=two", "--two\r\nnonsense"), false},
		{"no boundary", raw("multipart/form-data", "x"), raw("multipart/form-data", "x"), true},
		{"no boundary, another body", raw("multipart/form-data", "x"), raw("multipart/form-data", "y"), false},
		{"type that does not parse", raw("multipart/form-data; =", "x"), raw("multipart/form-data; =", "x"), true},
		{"another type that does not parse", raw("multipart/related; start=a; =", "x"), raw("multipart/related; start=b; =", "x"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
			first := serve(h, tt.first)
			require.Equal(t, 200, first.Code)
			second := serve(h, tt.second)
			if tt.same {
				requireReplay(t, first, second)
				return
			}
			require.Equal(t, 422, second.Code)
		})
	}
}
