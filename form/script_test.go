package form_test

import (
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

// maxScript is the most bytes of the compressed script.
const maxScript = 2600

func get(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestScriptIsSmall(t *testing.T) {
	t.Parallel()
	size := get(form.Script(), "GET", "/latch.js", "Accept-Encoding", "gzip").Body.Len()
	require.Less(t, size, maxScript)
	require.Greater(t, size, maxScript/4, "it is the script")
}

func TestIntegrityIsThatOfTheScript(t *testing.T) {
	t.Parallel()
	plain := get(form.Script(), "GET", "/latch.js").Body.Bytes()
	sum := sha512.Sum384(plain)
	want := "sha384-" + base64.StdEncoding.EncodeToString(sum[:])
	require.Equal(t, want, form.Integrity)

	z := must.Get(gzip.NewReader(get(form.Script(), "GET", "/latch.js", "Accept-Encoding", "br, gzip;q=0.5").Body))(t)
	unpacked := must.Get(io.ReadAll(z))(t)
	require.Equal(t, string(plain), string(unpacked))

	made := must.Get(os.ReadFile("latch.min.js"))(t)
	require.Equal(t, string(made), string(plain))
}

func TestScriptHeaders(t *testing.T) {
	t.Parallel()
	h := form.Script()
	resp := get(h, "GET", "/any/path.js")
	require.Equal(t, 200, resp.Code)
	require.Equal(t, "text/javascript; charset=utf-8", resp.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", resp.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "Accept-Encoding", resp.Header().Get("Vary"))
	require.Equal(t, "no-cache", resp.Header().Get("Cache-Control"), "another version has the same URL")
	require.Empty(t, resp.Header().Get("Set-Cookie"))

	year := "public, max-age=31536000, immutable"
	require.Equal(t, year, get(h, "GET", "/latch.js?v="+url.QueryEscape(form.Integrity)).Header().Get("Cache-Control"))
	require.Equal(t, "no-cache", get(h, "GET", "/latch.js?v=sha384-another").Header().Get("Cache-Control"))

	head := get(h, "HEAD", "/latch.js")
	require.Equal(t, 200, head.Code)
	require.Zero(t, head.Body.Len())
	require.Equal(t, resp.Header().Get("Etag"), head.Header().Get("Etag"))
	require.Equal(t, strconv.Itoa(resp.Body.Len()), head.Header().Get("Content-Length"))

	refused := get(h, "POST", "/latch.js")
	require.Equal(t, 405, refused.Code)
	require.Equal(t, "GET, HEAD", refused.Header().Get("Allow"))
}

func TestScriptIsAskedForAndNotSentAgain(t *testing.T) {
	t.Parallel()
	h := form.Script()
	plain, packed := get(h, "GET", "/").Header().Get("Etag"), get(h, "GET", "/", "Accept-Encoding", "gzip").Header().Get("Etag")
	require.NotEqual(t, plain, packed, "they are different bytes")
	for _, tt := range []struct {
		accept, tag string
		want        int
	}{
		{"", plain, 304},
		{"gzip", packed, 304},
		{"gzip", plain, 200},
		{"", packed, 200},
		{"", `"another"`, 200},
		{"", "*", 304},
	} {
		resp := get(h, "GET", "/", "Accept-Encoding", tt.accept, "If-None-Match", tt.tag)
		require.Equal(t, tt.want, resp.Code, tt)
		require.Equal(t, tt.want == 304, resp.Body.Len() == 0)
	}
}

func TestEncodings(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"":                    "",
		"gzip":                "gzip",
		"deflate, GZIP, br":   "gzip",
		"gzip;q=0":            "",
		"gzip ; q=0.001":      "gzip",
		"gzip;q=x":            "",
		"identity, xgzip":     "",
		"br;q=1.0, gzip;q=.8": "gzip",
	} {
		resp := get(form.Script(), "GET", "/", "Accept-Encoding", accept)
		require.Equal(t, want, resp.Header().Get("Content-Encoding"), accept)
		require.Equal(t, 200, resp.Code)
	}
	part := get(form.Script(), "GET", "/", "Accept-Encoding", "gzip", "Range", "bytes=0-9")
	require.Equal(t, 206, part.Code)
	require.Empty(t, part.Header().Get("Content-Encoding"), "a part of a compressed script is of no use")
	require.Equal(t, 10, part.Body.Len())
}
