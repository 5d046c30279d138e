package middleware_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
