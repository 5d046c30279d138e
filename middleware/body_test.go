package middleware_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// compressed returns content in this coding: as gzip and x-gzip in different bytes.
func compressed(t *testing.T, coding, content string) string {
	t.Helper()
	var b bytes.Buffer
	var z io.WriteCloser = zlib.NewWriter(&b)
	switch coding {
	case "":
		return content
	case "gzip":
		z = gzip.NewWriter(&b)
	case "x-gzip":
		stored, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
		require.NoError(t, err)
		stored.ModTime = time.Unix(1e9, 0)
		z = stored
	}
	_, err := io.WriteString(z, content)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// compressedRequest is a request with a body of a type in a coding, as a server hands it on.
func compressedRequest(contentType, coding, body string) *http.Request {
	r := typed(contentType, body, false)
	if coding != "" {
		r.Header.Set("Content-Encoding", coding)
	}
	return r
}

// TestTwoCompressionsAreOneRequest: a client compresses anew when it repeats. Guards and key functions
// see the content, and the handler the client's bytes.
func TestTwoCompressionsAreOneRequest(t *testing.T) {
	t.Parallel()
	const order, form = `{"id":"tea","n":1}`, "id=tea&n=1"
	const parts = "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\ntea\r\n--b--\r\n"
	byJSON, byForm := keyfunc.JSON("/id"), keyfunc.Form("id")
	for name, tt := range map[string]struct {
		key               keyfunc.Func
		opt               latch.IdempotentOption
		contentType, body string
	}{
		"bytes":         {keyfunc.IdempotencyKey, latch.With(), "application/json", order},
		"CanonicalJSON": {keyfunc.IdempotencyKey, latch.WithFingerprint(keyfunc.CanonicalJSON), "application/json", order},
		"chosen":        {keyfunc.IdempotencyKey, latch.WithFingerprint(byJSON), "application/json", order},
		"key JSON":      {byJSON, latch.With(), "application/json", order},
		"key Form":      {byForm, latch.With(), urlencoded, form},
		"key in parts":  {byForm, latch.With(), "multipart/form-data; boundary=b", parts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := latch.Idempotent(newLocker(t, memstore.New()), byUser, tt.key, tt.opt)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.Copy(w, r.Body)
			}))
			sent := compressed(t, "gzip", tt.body)
			first := serve(h, compressedRequest(tt.contentType, "gzip", sent))
			require.Equal(t, http.StatusCreated, first.Code)
			require.Equal(t, sent, first.Body.String())
			for _, coding := range []string{"", "x-gzip", "deflate"} {
				requireReplay(t, first, serve(h, compressedRequest(tt.contentType, coding, compressed(t, coding, tt.body))))
			}
		})
	}
}

// The twin: another content is another request, however it is compressed.
func TestCompressedBodiesThatDiffer(t *testing.T) {
	t.Parallel()
	request := func(coding, body string) *http.Request { return compressedRequest("application/json", coding, body) }
	tea, mug := compressed(t, "gzip", `{"id":"tea"}`), compressed(t, "gzip", `{"id":"mug"}`)
	broken := tea[:len(tea)-1]
	for name, tt := range map[string]struct{ first, second *http.Request }{
		"contents":                            {request("gzip", tea), request("gzip", mug)},
		"a content, and its bytes":            {request("gzip", tea), request("", tea)},
		"two that cannot be decompressed":     {request("gzip", broken), request("gzip", broken[:len(broken)-1])},
		"two codings at once, which is bytes": {request("gzip, gzip", tea), request("gzip, gzip", mug)},
	} {
		h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
		require.Equal(t, 201, serve(h, tt.first).Code, name)
		requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, serve(h, tt.second))
	}
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
	first := serve(h, request("gzip", broken))
	require.Equal(t, 201, first.Code)
	requireReplay(t, first, serve(h, request("gzip", broken)))
	byID := latch.Lock(newLocker(t, memstore.New()), "order", keyfunc.JSON("/id"))(mustNotRun(t))
	requireProblem(t, wantProblem{status: 400, kind: "key-invalid"}, serve(byID, request("gzip", broken)))
}

// TestBodyFirstOfABodyReadOutside: it is no slow body, and the key does not need it.
func TestBodyFirstOfABodyReadOutside(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*http.Request) error{"read": consume, "read and closed": consumeAndClose} {
		h := outside(t, read, latch.Lock(newLocker(t, memstore.New()), "user", byUser, latch.WithBodyFirst(100)), created)
		require.Equal(t, 201, serve(h, keyed("")).Code, name)
	}
}

// TestBodyFirstLimitsKeyFunctions that read the body before the guard does.
func TestBodyFirstLimitsKeyFunctions(t *testing.T) {
	t.Parallel()
	key := func(r *http.Request) (string, error) {
		body, err := bodybuf.Bytes(r, 1<<20)
		return fmt.Sprint(len(body), err), nil
	}
	l := newLocker(t, memstore.New())
	h := latch.Lock(l, "size", key, latch.WithBodyFirst(3))(mustNotRun(t))
	requireProblem(t, wantProblem{status: 413, kind: "body-too-large"}, serve(h, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("teas"))))
}

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
