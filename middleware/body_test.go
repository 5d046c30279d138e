package middleware_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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
		stored, _ := gzip.NewWriterLevel(&b, gzip.NoCompression) // the level is valid
		stored.ModTime = time.Unix(1e9, 0)
		z = stored
	}
	_, err := io.WriteString(z, content)
	require.NoError(t, errors.Join(err, z.Close()))
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

// A client compresses anew when it repeats. Guards and key functions see the content, and the handler the client's bytes.
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
		"CanonicalJSON": {keyfunc.IdempotencyKey, latch.WithFingerprint(keyfunc.CanonicalJSON), "application/json", order},
		"chosen":        {keyfunc.IdempotencyKey, latch.WithFingerprint(byJSON), "application/json", order},
		"key JSON":      {byJSON, latch.With(), "application/json", order},
		"key Form":      {byForm, latch.With(), urlencoded, form},
		"key in parts":  {byForm, latch.With(), "multipart/form-data; boundary=b", parts},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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
		"a content, and its bytes":            {request("gzip", tea), request("", tea)},
		"two that cannot be decompressed":     {request("gzip", broken), request("gzip", broken[:len(broken)-1])},
		"two codings at once, which is bytes": {request("gzip, gzip", tea), request("gzip, gzip", mug)},
	} {
		h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
		require.Equal(t, 201, serve(h, tt.first).Code, name)
		requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, serve(h, tt.second))
	}
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
	requireReplay(t, serve(h, request("gzip", broken)), serve(h, request("gzip", broken)))
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

// TestRequestIsRestored compares the requests that a handler gets with and without the guard, over a connection.
func TestRequestIsRestored(t *testing.T) {
	t.Parallel()
	const head = "POST /orders HTTP/1.1\r\nHost: x\r\nX-User-ID: 42\r\nIdempotency-Key: k\r\nConnection: close\r\n"
	for name, tt := range map[string]struct{ raw, body string }{
		"body":                {head + "Content-Length: 5\r\n\r\n12345", "12345"},
		"no body":             {head + "\r\n", ""},
		"chunked":             {head + "Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n2\r\n45\r\n0\r\n\r\n", "12345"},
		"chunked and empty":   {head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
		"announced trailers":  {head + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n123\r\n0\r\nX-Sum: 7\r\n\r\n", "123"},
		"unannounced trailer": {head + "Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n0\r\nX-Sum: 7\r\n\r\n", "123"},
		"at the limit":        {head + "Content-Length: 100\r\n\r\n" + strings.Repeat("1", 100), strings.Repeat("1", 100)},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			l := newLocker(t, memstore.New())
			found := make(chan seen, 1)
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { found <- look(r) })
			bare := startServer(t, handler)
			guards := []func(http.Handler) http.Handler{
				once(l, latch.WithBodyLimits(100, 100)), latch.Lock(l, "user", byUser, latch.WithBodyFirst(100)),
				latch.Lock(l, "body", keyfunc.Optional(keyfunc.CanonicalJSON)),
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
	conn := must.Get(dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String()))(t)
	defer func() { _ = conn.Close() }()
	must.Get(io.WriteString(conn, raw))(t)
	return string(must.Get(io.ReadAll(conn))(t))
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
			got = string(must.Get(io.ReadAll(r.Body))(t))
		})), r)
		require.Equal(t, `{"sku":"x"}`, got, name)
		require.Equal(t, body, r.Body, "%s: the caller's request is unchanged", name)
	}
}

// TestBodyDecodedOutsideUpToItsLineEndIsRefused: a decoder stops after the value, so that the line end which most
// encoders write may be left. This rest does not identify the request, just like an empty rest. The place where a
// decoder stops depends on the size of its reads: a full buffer, or a chunk.
func TestBodyDecodedOutsideUpToItsLineEndIsRefused(t *testing.T) {
	t.Parallel()
	type order struct{ SKU, Pad string }
	fromJSON := func(body io.Reader, o *order) error { return json.NewDecoder(body).Decode(o) }
	fromXML := func(body io.Reader, o *order) error { return xml.NewDecoder(body).Decode(o) }
	for name, tt := range map[string]struct {
		decode            func(body io.Reader, o *order) error
		contentType, body string
		chunked           bool
	}{
		"JSON that fills the buffer": {fromJSON, "application/json", `{"sku":"SKU","pad":"` + strings.Repeat("x", 490) + "\"}\n", false},
		"JSON in chunks":             {fromJSON, "application/json", `{"sku":"SKU"}` + "\r\n", true},
		"XML in chunks":              {fromXML, "text/xml; charset=utf-8", "<order><SKU>SKU</SKU></order>\n", true},
		"XML of a kind in chunks":    {fromXML, "application/soap+xml", "<order><SKU>SKU</SKU></order>", true},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			store := memstore.New()
			decodes := func(r *http.Request) error { return tt.decode(r.Body, new(order)) }
			h := outside(t, decodes, latch.Dedupe(newLocker(t, store), byUser, time.Hour), mustNotRun(t))
			submit := func(sku string) *httptest.ResponseRecorder {
				body := strings.Replace(tt.body, "SKU\"", sku+"\"", 1)
				body = strings.Replace(body, "SKU<", sku+"<", 1)
				r := typed(tt.contentType, body, tt.chunked)
				if tt.chunked { // the line end is a separate chunk
					value := strings.TrimRight(body, "\r\n")
					r.Body = io.NopCloser(io.MultiReader(strings.NewReader(value), iotest.OneByteReader(strings.NewReader(body[len(value):]))))
				}
				return serve(h, r)
			}
			for _, sku := range []string{"tea", "mug"} {
				requireProblem(t, wantProblem{status: 500, kind: "body-consumed"}, submit(sku))
			}
			requireEmpty(t, store)
		})
	}
}

// The twin: the client has sent white space.
func TestBlankBodyIsServed(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	for key, r := range map[string]*http.Request{
		"JSON":         typed("application/json", " \n", false),
		"chunked text": typed("text/plain", " \n", true),
	} {
		r.Header.Set("Idempotency-Key", strings.ReplaceAll(key, " ", "-"))
		answer := serve(h, r)
		require.Equal(t, 200, answer.Code, key)
		require.Equal(t, " \n", answer.Body.String(), key)
	}
}

// The form of a script that sends only a path. It is parsed like any other form, and is not lost.
func TestFormWithoutPartsParsedOutsideIsServed(t *testing.T) {
	t.Parallel()
	for name, parse := range map[string]func(*http.Request) error{
		"parsed":        parseMultipart,
		"looked for":    func(r *http.Request) error { r.FormValue("_method"); return nil },
		"and by a copy": func(r *http.Request) error { err := parseMultipart(r); *r = *r.Clone(r.Context()); return err },
	} {
		for _, chunked := range []bool{false, true} {
			for _, body := range []string{"--b--\r\n", "\r\n--b--\r\n"} {
				var e effects
				h := outside(t, parse, latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour), e.answer)
				for i, path := range []string{"/orders/1/pay", "/orders/1/pay", "/orders/2/pay"} {
					r := typed("multipart/form-data; boundary=b", body, chunked)
					r.URL.Path = path
					w := serve(h, r)
					require.Equal(t, 201, w.Code, "%s, %q, chunked: %v: %s", name, body, chunked, w.Body)
					require.Equal(t, i == 1, w.Header().Get("Idempotent-Replayed") == "true", name)
				}
				e.require(t, 2)
			}
		}
	}
}
