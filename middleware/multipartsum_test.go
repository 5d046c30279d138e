package middleware_test

import (
	"bytes"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const formPart = "Content-Disposition: form-data; name=\"sku\"\r\n\r\ntea"

// TestMultipartBodiesDoNotCollide: no two of these are one request.
func TestMultipartBodiesDoNotCollide(t *testing.T) {
	t.Parallel()
	const form, related = "multipart/form-data; boundary=b", "multipart/related; boundary=b"
	const part = "--b\r\n" + formPart + "\r\n"
	var requests [][2]string
	add := func(contentType, body string) { requests = append(requests, [2]string{contentType, body}) }
	add(form, part+"--b--\r\n") // as browsers send it
	for _, end := range []string{"--b--\nX", "--b--\n", "--b-- \r\n", "--b--\t\r\nX", "--b--\r\nX", "--b--X", "--b--\r\n\r\n", "--b--\r", "--b", "--b-", "--b\r\n", "--b--\r\n--b--\r\n", "--b--\r\n" + part + "--b--\r\n", ""} {
		add(form, part+end)
	}
	for _, front := range []string{"X\r\n", "X", "\n", "\r\n\r\n", "X\n", "--c\r\n", "--", part, "--b \r\n", "--b--\r\n"} {
		add(form, front+part+"--b--\r\n")
	}
	for _, other := range []string{
		"--b\n" + formPart + "\r\n--b--\r\n", "--b\r\n" + formPart + "\n--b--\r\n", "--b \r\n" + formPart + "\r\n--b--\r\n",
		"--b\r\n" + formPart + "--b--\r\n", "--b\r\n--b--\r\n", "--b--\r\n", "--b\r\n\r\n--b--\r\n", "--b\r\n\r\n\r\n--b--\r\n",
		strings.ReplaceAll(part, "name", "Name") + "--b--\r\n", strings.ReplaceAll(part, "\r\n\r\n", "\r\nX: 1\r\n\r\n") + "--b--\r\n",
		strings.ReplaceAll(part, "tea", "tea\r\n--b") + "--b--\r\n", strings.ReplaceAll(part, "tea", "tea\n--bc") + "--b--\r\n",
	} {
		add(form, other)
	}
	disposition := "--b\r\nContent-Disposition: form-data; name="
	const file = `"photo"; filename="a.png"` + "\r\nContent-Type: image/png\r\n\r\nbytes\r\n"
	for _, other := range []string{
		disposition + file, disposition + strings.Replace(file, "a.png", "b.png", 1), disposition + strings.Replace(file, "png\r", "gif\r", 1),
		part + disposition + file, disposition + file + part,
		strings.ReplaceAll(part, "sku", "SKU"), strings.ReplaceAll(part, "tea", "te") + strings.ReplaceAll(part, "tea", "a"),
	} {
		add(form, other+"--b--\r\n")
	}
	for _, contentType := range []string{
		"multipart/form-data; =", "multipart/related; start=a; =", "multipart/related; start=b; =",
		related, related + "; start=a", related + "; start=c", related + "; start=a; type=x", related + "; start-info=a",
		"multipart/mixed; boundary=b", "multipart/form-data; boundary=c", form + "; charset=utf-8", form + "; charset=latin1",
		"multipart/form-data", "multipart/form-data; boundary=\"\"",
	} {
		add(contentType, part+"--b--\r\n")
	}
	for _, b := range []string{"b", "c"} { // a line of the content begins like a boundary
		add("multipart/form-data; boundary="+b, "--"+b+"\r\n"+formPart+"\r\n--"+b+"ar\r\n--"+b+"--\r\n")
	}
	for _, front := range []string{"", "\r\n"} { // without a boundary, nothing says what the parts are
		add("multipart/form-data", front+"--\r\n"+formPart+"\r\n----")
	}

	var e effects
	h := latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { e.n.Add(1) }))
	for i, r := range requests {
		replayed := func() string { return serve(h, typed(r[0], r[1], false)).Header().Get("Idempotent-Replayed") }
		require.Empty(t, replayed(), "%q", r)
		e.require(t, int64(i+1))
		require.Equal(t, "true", replayed())
	}
}

// FuzzMultipart: two bodies of one boundary are one request only if they are equal, and a body that is written again
// with another boundary is the same request only if it has the same content.
func FuzzMultipart(f *testing.F) {
	f.Add("--b\r\n"+formPart+"\r\n--b--\r\n", "--b\r\n"+formPart+"\r\n--b--\nX", "b", "c")
	f.Add("--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--", "--b\r\n\r\n1\r\n--b--\r\n--b\r\n\r\n2\r\n--b--", "b", "cc")
	f.Add("\r\n--b--\r\n", "--b--\r\n", "b", "-")
	same := func(t *testing.T, first, second *http.Request) bool {
		t.Helper()
		store := &recordStore{Store: memstore.New()}
		l := lock.New(store)
		defer end(l)
		h := latch.Dedupe(l, byUser, time.Hour)(http.HandlerFunc(created))
		serve(h, first)
		record := store.record
		serve(h, second)
		return record == store.record
	}
	f.Fuzz(func(t *testing.T, one, two, boundary, other string) {
		contentType := mime.FormatMediaType("multipart/form-data", map[string]string{"boundary": boundary})
		otherType := mime.FormatMediaType("multipart/form-data", map[string]string{"boundary": other})
		if contentType == "" || otherType == "" || one == "" || two == "" {
			return
		}
		trimmed := func(s string) string { return strings.TrimPrefix(strings.TrimSuffix(s, "\r\n"), "\r\n") }
		if same(t, typed(contentType, one, false), typed(contentType, two, false)) && trimmed(one) != trimmed(two) {
			t.Fatalf("%q and %q are one request", one, two)
		}
		if boundary != other && same(t, typed(contentType, one, false), typed(otherType, two, false)) {
			require.Equal(t, read(one, boundary), read(two, other))
		}
	})
}

// read returns the parts that a reader of a multipart body finds.
func read(body, boundary string) (parts []string) {
	r := multipart.NewReader(strings.NewReader(body), boundary)
	for {
		p, err := r.NextRawPart()
		if err != nil {
			return append(parts, err.Error())
		}
		var content bytes.Buffer
		if _, err = content.ReadFrom(p); err != nil {
			return append(parts, err.Error())
		}
		parts = append(parts, content.String())
	}
}

// The guard hands on the request that the server removes the temporary files of.
func TestMultipartTempFiles(t *testing.T) {
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]guardFunc{
		"bare":       func(h http.Handler) http.Handler { return h },
		"lock":       latch.Lock(l, "u", keyfunc.Global),
		"idempotent": latch.Idempotent(l, keyfunc.Global, keyfunc.Global),
	} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		server := startServer(t, guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1 << 10); err != nil {
				http.Error(w, err.Error(), 500)
			}
		})))
		require.Equal(t, 200, over(t, server, upload(t, "tea", "f", "f", strings.Repeat("x", 200<<10), false)).status, name)
		server.Close()
		require.Empty(t, must.Get(os.ReadDir(dir))(t), name)
	}
}
