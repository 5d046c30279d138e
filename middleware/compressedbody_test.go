package middleware_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// compressors write one content in different bytes.
var compressors = map[string]func(t *testing.T, content string) (coding, body string){
	"none": func(_ *testing.T, content string) (coding, body string) { return "", content },
	"gzip": func(t *testing.T, content string) (coding, body string) {
		t.Helper()
		return "gzip", closed(t, content, func(to io.Writer) io.WriteCloser { return gzip.NewWriter(to) })
	},
	"gzip, stored, with its time": func(t *testing.T, content string) (coding, body string) {
		t.Helper()
		return "x-gzip", closed(t, content, func(to io.Writer) io.WriteCloser {
			z, err := gzip.NewWriterLevel(to, gzip.NoCompression)
			require.NoError(t, err)
			z.ModTime = time.Unix(1e9, 0)
			return z
		})
	},
	"deflate": func(t *testing.T, content string) (coding, body string) {
		t.Helper()
		return "deflate", closed(t, content, func(to io.Writer) io.WriteCloser { return zlib.NewWriter(to) })
	},
}

func closed(t *testing.T, content string, open func(to io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	z := open(&b)
	_, err := io.WriteString(z, content)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// TestTwoCompressionsAreOneRequest: a client compresses anew when it repeats. Guards and key functions
// see the content, and the handler the client's bytes.
func TestTwoCompressionsAreOneRequest(t *testing.T) {
	t.Parallel()
	const order = `{"id":"tea","n":1}`
	form := func(boundary string) (contentType, body string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		require.NoError(t, w.SetBoundary(boundary))
		require.NoError(t, w.WriteField("id", "tea"))
		require.NoError(t, w.Close())
		return w.FormDataContentType(), b.String()
	}
	type content func(try int) (contentType, body string)
	asJSON := content(func(int) (string, string) { return "application/json", order })
	asForm := content(func(int) (string, string) { return urlencoded, "id=tea&n=1" })
	asMultipart := content(func(try int) (string, string) { return form(strings.Repeat("b", 10+try)) })
	for name, tt := range map[string]struct {
		guard func(http.Handler) http.Handler
		content
	}{
		"Idempotent":    {once(newLocker(t, memstore.New())), asJSON},
		"Dedupe":        {latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour), asJSON},
		"CanonicalJSON": {once(newLocker(t, memstore.New()), latch.WithFingerprint(keyfunc.CanonicalJSON)), asJSON},
		"chosen":        {once(newLocker(t, memstore.New()), latch.WithFingerprint(keyfunc.JSON("/id"))), asJSON},
		"ACP":           {once(newLocker(t, memstore.New()), latch.ACP()), asJSON},
		"key JSON":      {latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.JSON("/id")), asJSON},
		"key Form":      {latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.Form("id")), asForm},
		"form":          {once(newLocker(t, memstore.New())), asForm},
		"multipart":     {once(newLocker(t, memstore.New())), asMultipart},
		"key in parts":  {latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.Form("id")), asMultipart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			var want string // the client's bytes
			srv := httptest.NewServer(tt.guard(e.then(func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if err != nil || string(got) != want || r.ContentLength != int64(len(want)) {
					t.Errorf("the handler got %q of %d bytes, %v, and the client has sent %q", got, r.ContentLength, err, want)
				}
				w.WriteHeader(http.StatusCreated)
			})))
			t.Cleanup(srv.Close)
			try := 0
			for how, compress := range compressors {
				contentType, plain := tt.content(try)
				coding, body := compress(t, plain)
				if try == 0 {
					want = body
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Content-Type", contentType)
				req.Header.Set("X-User-ID", "42")
				req.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
				if coding != "" {
					req.Header.Set("Content-Encoding", coding)
				}
				resp, err := srv.Client().Do(req)
				require.NoError(t, err)
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, resp.StatusCode, "%s: %s", how, answer)
				require.Equal(t, try > 0, resp.Header.Get("Idempotent-Replayed") == "true", how)
				try++
			}
			e.require(t, 1)
		})
	}
}

// The twin: another content is another request, however it is compressed.
func TestCompressedBodiesThatDiffer(t *testing.T) {
	t.Parallel()
	request := func(coding, body string) *http.Request {
		r := typed("application/json", body, false)
		r.Header.Set("Content-Encoding", coding)
		return r
	}
	_, tea := compressors["gzip"](t, `{"id":"tea"}`)
	_, mug := compressors["gzip"](t, `{"id":"mug"}`)
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

// TestBombIsRefused: the limit of a body counts for its content, too.
func TestBombIsRefused(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"Idempotent":      once(l),
		"a limit":         once(l, latch.WithBodyLimits(100_000, 1)),
		"Dedupe":          latch.Dedupe(l, byUser, time.Hour),
		"key JSON":        latch.Lock(l, "order", keyfunc.JSON("/id")),
		"with body first": latch.Lock(l, "order", keyfunc.JSON("/id"), latch.WithBodyFirst(10_000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coding, bomb := compressors["gzip"](t, `{"id":"`+strings.Repeat("x", 2<<20)+`"}`)
			require.Less(t, len(bomb), 10_000)
			r := typed("application/json", bomb, false)
			r.Header.Set("Content-Encoding", coding)
			requireProblem(t, wantProblem{status: 413, kind: "body-too-large"}, serve(guard(mustNotRun(t)), r))
		})
	}
}
