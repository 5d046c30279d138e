package middleware_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// outside runs read before guard, like a middleware that reads forms or bodies.
func outside(t *testing.T, read func(r *http.Request) error, guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	t.Helper()
	next := guard(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := read(r); err != nil {
			t.Error(err)
		}
		next.ServeHTTP(w, r)
	})
}

func parseForm(r *http.Request) error      { return r.ParseForm() }
func parseMultipart(r *http.Request) error { return r.ParseMultipartForm(1 << 20) }
func parseToDisk(r *http.Request) error    { return r.ParseMultipartForm(0) }
func consume(r *http.Request) error        { _, err := io.Copy(io.Discard, r.Body); return err }
func consumeAndClose(r *http.Request) error {
	if err := consume(r); err != nil {
		return err
	}
	return r.Body.Close()
}

// typed is a submission of user 42 with a body of a type. Without a length it is chunked.
func typed(contentType, body string, chunked bool) *http.Request {
	r := keyedBody("k", body)
	r.Header.Set("Content-Type", contentType)
	r.Body = io.NopCloser(strings.NewReader(body))
	if chunked {
		r.ContentLength = -1
	}
	return r
}

const urlencoded = "application/x-www-form-urlencoded"

func upload(t *testing.T, sku, field, file, content string, chunked bool) *http.Request {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	require.NoError(t, w.WriteField("sku", sku))
	require.NoError(t, w.WriteField("once", "1"))
	must.Get(io.WriteString(must.Get(w.CreateFormFile(field, file))(t), content))(t)
	require.NoError(t, w.Close())
	return typed(w.FormDataContentType(), body.String(), chunked)
}

// TestFormParsedOutsideIsFingerprinted: after a form was parsed outside the guard, its body is gone, or a rest of it is left.
// Two such requests are the same only if their parsed forms are equal.
func TestFormParsedOutsideIsFingerprinted(t *testing.T) {
	t.Parallel()
	order := func(sku string) func(bool) *http.Request {
		return func(chunked bool) *http.Request { return typed(urlencoded, "once=1&sku="+sku, chunked) }
	}
	file := func(sku, field, name, content string) func(bool) *http.Request {
		return func(chunked bool) *http.Request { return upload(t, sku, field, name, content, chunked) }
	}
	followed := func(sku string) func(bool) *http.Request {
		body := "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\n" + sku + "\r\n--b--\r\n" + strings.Repeat("epilogue", 4<<10)
		return func(chunked bool) *http.Request { return typed("multipart/form-data; boundary=b", body, chunked) }
	}
	long := strings.Repeat("x", 100<<10)
	photo := file("tea", "photo", "a.png", long)
	for name, tt := range map[string]struct {
		parse         func(*http.Request) error
		first, second func(chunked bool) *http.Request
		same          bool
	}{
		"another spelling":     {parseForm, order("tea"), order("%74ea"), true},
		"one value more":       {parseForm, order("tea"), order("tea&sku=coffee"), false},
		"another name":         {parseForm, order("tea"), order("tea&x"), false},
		"the same files":       {parseMultipart, photo, photo, true},
		"the same on disk":     {parseToDisk, photo, photo, true},
		"multipart value":      {parseMultipart, photo, file("coffee", "photo", "a.png", long), false},
		"content on disk":      {parseToDisk, photo, file("tea", "photo", "a.png", long[1:]+"y"), false},
		"file name":            {parseMultipart, photo, file("tea", "photo", "b.png", long), false},
		"field of the file":    {parseMultipart, photo, file("tea", "image", "a.png", long), false},
		"before the same rest": {parseMultipart, followed("tea"), followed("pie"), false},
	} {
		for _, chunked := range []bool{false, true} {
			parallel.Run(t, fmt.Sprint(name, ", chunked: ", chunked), func(t *testing.T) {
				h := outside(t, tt.parse, latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour), func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "ordered "+r.PostFormValue("sku")) // as it was parsed outside
					if r.MultipartForm != nil {
						_ = r.MultipartForm.RemoveAll()
					}
				})
				first := serve(h, tt.first(chunked))
				require.Equal(t, "ordered tea", first.Body.String())
				if second := serve(h, tt.second(chunked)); tt.same {
					requireReplay(t, first, second)
				} else {
					require.Empty(t, second.Header().Get("Idempotent-Replayed"), second.Body)
				}
			})
		}
	}
}

// TestFilesParsedOutsideHaveOneOrder, though a parsed form has none.
func TestFilesParsedOutsideHaveOneOrder(t *testing.T) {
	t.Parallel()
	var body string
	for _, field := range []string{"a", "b", "c", "d"} {
		body += "--b\r\nContent-Disposition: form-data; name=\"" + field + "\"; filename=\"a.png\"\r\n\r\n" + field + "\r\n"
	}
	h := outside(t, parseMultipart, latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour), created)
	send := func() *httptest.ResponseRecorder {
		return serve(h, typed("multipart/form-data; boundary=b", body+"--b--\r\n", false))
	}
	first := send()
	for range 50 {
		requireReplay(t, first, send())
	}
}

// TestFormParsedOutsideIsTheSameAtEveryLength: where parsing stops to read does not count.
func TestFormParsedOutsideIsTheSameAtEveryLength(t *testing.T) {
	t.Parallel()
	h := outside(t, parseMultipart, latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour), created)
	for n := 3 << 10; n < 9<<10; n += 7 {
		content := strings.Repeat("x", n)
		first := serve(h, upload(t, "tea", "photo", "a.png", content, false))
		requireReplay(t, first, serve(h, upload(t, "tea", "photo", "a.png", content, false)))
	}
}

// A file of a form that was parsed outside and can no longer be read.
func TestFileOfFormParsedOutsideIsGone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	store := memstore.New()
	l := newLocker(t, store)
	h := outside(t, func(r *http.Request) error {
		if err := parseToDisk(r); err != nil {
			return err
		}
		return r.MultipartForm.RemoveAll()
	}, latch.Dedupe(l, byUser, time.Hour), mustNotRun(t))
	requireProblem(t, wantProblem{status: 500, kind: "body-consumed"}, serve(h, upload(t, "tea", "photo", "a", "x", false)))
	requireEmpty(t, store)
	require.Empty(t, must.Get(os.ReadDir(dir))(t))
}

// TestBodyConsumedOutsideIsRefused: a body that was read outside, and cannot be read again, never counts as an empty
// body. Nothing is claimed. Other ways to read it are in TestConsumed of internal/bodybuf.
func TestBodyConsumedOutsideIsRefused(t *testing.T) {
	t.Parallel()
	jsonBody := func(chunked bool) *http.Request { return typed("application/merge-patch+json", `{"id":"1"}`, chunked) }
	form := func(bool) *http.Request { return typed(urlencoded, "id=1", false) } // without a length it cannot be found out
	multi := func(chunked bool) *http.Request { return upload(t, "tea", "photo", "a", "x", chunked) }
	readByParts := func(r *http.Request) error {
		parts, err := r.MultipartReader()
		if err != nil {
			return err
		}
		for err == nil {
			_, err = parts.NextPart()
		}
		return consume(r)
	}
	for name, tt := range map[string]struct {
		read    func(*http.Request) error
		request func(chunked bool) *http.Request
	}{
		"JSON, closed":         {consumeAndClose, jsonBody},
		"form":                 {consume, form},
		"multipart, by reader": {readByParts, multi},
	} {
		store := memstore.New()
		l := newLocker(t, store)
		for guardName, guard := range map[string]guardFunc{
			"Idempotent":               once(l),
			"Dedupe":                   latch.Dedupe(l, byUser, time.Hour),
			"WithFingerprint":          once(l, latch.WithFingerprint(keyfunc.JSON("/id"))),
			"WithFingerprint, skipped": once(l, latch.WithFingerprint(func(*http.Request) (string, error) { return "", keyfunc.ErrSkip })),
			"key JSON, optional":       latch.Idempotent(l, byUser, keyfunc.Optional(keyfunc.JSON("/id"))),
			"key Form":                 latch.Idempotent(l, byUser, keyfunc.Form("id")),
			"Lock with JSON":           latch.Lock(l, "order", keyfunc.Join(byUser, keyfunc.JSON("/id"))),
			"Lock with Form":           latch.Lock(l, "order", keyfunc.Hash(keyfunc.Form("id"))),
		} {
			for _, chunked := range []bool{false, true} {
				w := serve(outside(t, tt.read, guard, mustNotRun(t)), tt.request(chunked))
				require.Contains(t, w.Body.String(), "body-consumed", "%s, %s, chunked: %v", name, guardName, chunked)
				requireProblem(t, wantProblem{status: 500, kind: "body-consumed"}, w)
			}
		}
		requireEmpty(t, store)
	}
}

func requireEmpty(t *testing.T, store lock.Store) {
	t.Helper()
	inspector, ok := store.(lock.Inspector)
	require.True(t, ok)
	for entry, err := range inspector.List(t.Context()) {
		require.NoError(t, err)
		t.Errorf("%s is %v", entry.Key, entry.State)
	}
}

// The twin: bodies that are replaced outside are complete, although the client has sent other ones.
func TestBodyReplacedOutsideIsServed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 100)
	shorter := func(r *http.Request) error {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1
		return nil
	}
	unzip := func(r *http.Request) error {
		unzipped, err := gzip.NewReader(r.Body)
		r.Body = io.NopCloser(unzipped)
		return err
	}
	tinyGzip := func() *http.Request {
		tiny := compressed(t, "gzip", "{}") // longer than its content
		r := compressedRequest("application/json", "gzip", tiny)
		r.Header.Set("Content-Length", strconv.Itoa(len(tiny)))
		return r
	}
	for name, tt := range map[string]struct {
		read    func(*http.Request) error
		request *http.Request
		want    string
	}{
		"longer":                 {unzip, typed("text/plain", compressed(t, "gzip", long), false), long},
		"shorter":                {shorter, typed("text/plain", "1234", false), "x"},
		"shorter, by its coding": {unzip, tinyGzip(), "{}"},
		"shorter, by its coding, without headers": {func(r *http.Request) error { // as gin-contrib/gzip does
			r.Header.Del("Content-Encoding")
			r.Header.Del("Content-Length")
			return unzip(r)
		}, tinyGzip(), "{}"},
		"restored": {func(r *http.Request) error {
			b, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(b))
			return err
		}, typed("application/json", "{}", false), "{}"},
		"empty": {func(*http.Request) error { return nil }, typed("application/json", "", false), ""},
	} {
		h := outside(t, tt.read, once(newLocker(t, memstore.New())), func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		w := serve(h, tt.request)
		require.Equal(t, 200, w.Code, name)
		require.Equal(t, tt.want, w.Body.String(), name)
	}
}

// TestBodyConsumedOutsideWithChosenFingerprintIsServed: a service that decodes the body outside can choose what is compared.
func TestBodyConsumedOutsideWithChosenFingerprintIsServed(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	h := outside(t, consume, once(l, latch.WithFingerprint(keyfunc.Header("X-Decoded"))), e.answer)
	request := func(decoded string) *http.Request {
		r := keyed("k")
		r.Header.Set("X-Decoded", decoded)
		return r
	}
	first := serve(h, request("tea"))
	require.Equal(t, 201, first.Code)
	requireReplay(t, first, serve(h, request("tea")))
	requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, serve(h, request("coffee")))
	require.Equal(t, 201, serve(outside(t, consume, latch.Lock(l, "user", byUser), created), keyed("k")).Code)
}

func TestConsumedBodyIsHintedOnce(t *testing.T) {
	var out bytes.Buffer
	l := newLocker(t, memstore.New(), logging(&out))
	for name, guard := range map[string]guardFunc{
		"idempotent": once(l),
		"dedupe":     latch.Dedupe(l, byUser, time.Hour),
		"order":      latch.Lock(l, "order", keyfunc.JSON("/sku")),
	} {
		out.Reset()
		h := outside(t, consume, guard, mustNotRun(t))
		for range 3 {
			requireProblem(t, wantProblem{status: 500, kind: "body-consumed"}, serve(h, keyed("k")))
		}
		requireLine(t, &out, "ERROR", name, "mount the guard outside")
	}
}

// TestPartOfABodyReadOutsideIsRefused: two orders may end alike, so the rest of a body identifies none
// of them. A server announces the length of a body that is not sent in chunks.
func TestPartOfABodyReadOutsideIsRefused(t *testing.T) {
	t.Parallel()
	begin := func(r *http.Request) error { _, err := io.ReadFull(r.Body, make([]byte, len("order 1\n"))); return err }
	limited := func(r *http.Request) error {
		r.Body = http.MaxBytesReader(nil, r.Body, 100)
		return begin(r)
	}
	counted := func(r *http.Request) error { // as tracing does
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, io.Discard), r.Body}
		return begin(r)
	}
	for name, read := range map[string]func(*http.Request) error{
		"plain": begin, "with a limit": limited, "wrapped": counted, "all of it": consumeAndClose,
	} {
		l := newLocker(t, memstore.New())
		for guardName, guard := range map[string]guardFunc{
			"Idempotent":     once(l),
			"Dedupe":         latch.Dedupe(l, byUser, time.Hour),
			"Lock with JSON": latch.Lock(l, "order", keyfunc.JSON("/id")),
		} {
			for _, h2 := range []bool{false, true} {
				parallel.Run(t, fmt.Sprint(name, ", ", guardName, ", HTTP/2: ", h2), func(t *testing.T) {
					server := startServerOf(t, outside(t, read, guard, mustNotRun(t)), h2)
					for order, coding := range map[string]string{"order 1": "", "order 2": "identity", "order 3": "UTF-8"} {
						r := clientRequest(t, server.URL, "k")
						body := order + "\n" + `{"id":"tea"}`
						r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
						if coding != "" {
							r.Header.Set("Content-Encoding", coding)
						}
						answer := exchanged(t, server, r)
						require.Equal(t, http.StatusInternalServerError, answer.status)
						require.Contains(t, string(answer.body), "body-consumed")
					}
				})
			}
		}
	}
}
