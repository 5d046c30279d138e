package middleware_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// typed is a submission of user 42 with a body of a type. Without a length it
// is chunked.
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

// upload is a multipart form with a value and a file.
func upload(t *testing.T, sku, field, file, content string, chunked bool) *http.Request {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	require.NoError(t, w.WriteField("sku", sku))
	require.NoError(t, w.WriteField("once", "1"))
	part, err := w.CreateFormFile(field, file)
	require.NoError(t, err)
	_, err = io.WriteString(part, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return typed(w.FormDataContentType(), body.String(), chunked)
}

// TestFormParsedOutsideIsFingerprinted: after a form was parsed outside the
// guard, its body is gone. Two such requests are the same only if their parsed
// forms are equal.
func TestFormParsedOutsideIsFingerprinted(t *testing.T) {
	t.Parallel()
	order := func(sku string) func(bool) *http.Request {
		return func(chunked bool) *http.Request { return typed(urlencoded, "once=1&sku="+sku, chunked) }
	}
	file := func(sku, field, name, content string) func(bool) *http.Request {
		return func(chunked bool) *http.Request { return upload(t, sku, field, name, content, chunked) }
	}
	long := strings.Repeat("x", 100<<10)
	photo := file("tea", "photo", "a.png", long)
	tests := map[string]struct {
		parse         func(*http.Request) error
		first, second func(chunked bool) *http.Request
		same          bool
	}{
		"the same value":    {parseForm, order("tea"), order("tea"), true},
		"another value":     {parseForm, order("tea"), order("coffee"), false},
		"another spelling":  {parseForm, order("tea"), order("%74ea"), true},
		"one value more":    {parseForm, order("tea"), order("tea&sku=coffee"), false},
		"another name":      {parseForm, order("tea"), order("tea&x"), false},
		"the same files":    {parseMultipart, photo, photo, true},
		"the same on disk":  {parseToDisk, photo, photo, true},
		"multipart value":   {parseMultipart, photo, file("coffee", "photo", "a.png", long), false},
		"file content":      {parseMultipart, photo, file("tea", "photo", "a.png", long[1:]+"y"), false},
		"content on disk":   {parseToDisk, photo, file("tea", "photo", "a.png", long[1:]+"y"), false},
		"file name":         {parseMultipart, photo, file("tea", "photo", "b.png", long), false},
		"field of the file": {parseMultipart, photo, file("tea", "image", "a.png", long), false},
	}
	guards := map[string]func(l *lock.Locker) func(http.Handler) http.Handler{
		"Dedupe": func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, time.Hour) },
		"Idempotent": func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Idempotent(l, byUser, keyfunc.Form("once"))
		},
	}
	stores := map[string]func(t *testing.T) lock.Store{
		"memory": func(*testing.T) lock.Store { return memstore.New() },
		"redis":  redisStore,
	}
	for name, tt := range tests {
		for guardName, guard := range guards {
			for storeName, store := range stores {
				for _, chunked := range []bool{false, true} {
					t.Run(strings.Join([]string{name, guardName, storeName, map[bool]string{true: "chunked"}[chunked]}, " "), func(t *testing.T) {
						t.Parallel()
						l := newLocker(t, store(t), patient)
						var e effects
						h := outside(t, tt.parse, guard(l), e.then(func(w http.ResponseWriter, r *http.Request) {
							// The form is as it was parsed outside.
							_, _ = io.WriteString(w, "ordered "+r.PostFormValue("sku"))
							if r.MultipartForm != nil {
								_ = r.MultipartForm.RemoveAll()
							}
						}))
						first := serve(h, tt.first(chunked))
						require.Equal(t, 200, first.Code, first.Body)
						require.Equal(t, "ordered tea", first.Body.String())
						second := serve(h, tt.second(chunked))
						switch {
						case tt.same:
							requireReplay(t, first, second)
							e.require(t, 1)
						case guardName == "Dedupe":
							require.Empty(t, second.Header().Get("Idempotent-Replayed"), second.Body)
							e.require(t, 2)
						default:
							requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, second)
							e.require(t, 1)
						}
					})
				}
			}
		}
	}
}

// TestFormParsedOutsideWithLeftoverIsFingerprinted: the rest of the body after
// parsing is not mistaken for the whole body.
func TestFormParsedOutsideWithLeftoverIsFingerprinted(t *testing.T) {
	t.Parallel()
	form := func(sku string) *http.Request {
		return typed("multipart/form-data; boundary=b",
			"--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\n"+sku+"\r\n--b--\r\n"+strings.Repeat("epilogue", 4<<10), false)
	}
	l := newLocker(t, memstore.New())
	var e effects
	h := outside(t, parseMultipart, latch.Dedupe(l, byUser, time.Hour), e.answer)
	serve(h, form("tea"))
	require.Empty(t, serve(h, form("pie")).Header().Get("Idempotent-Replayed"))
	e.require(t, 2)
}

// TestFilesParsedOutsideHaveOneOrder, though a parsed form has none.
func TestFilesParsedOutsideHaveOneOrder(t *testing.T) {
	t.Parallel()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, field := range []string{"a", "b", "c", "d"} {
		part, err := w.CreateFormFile(field, field+".png")
		require.NoError(t, err)
		_, err = io.WriteString(part, field)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	h := outside(t, parseMultipart, latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Hour), created)
	first := serve(h, typed(w.FormDataContentType(), body.String(), false))
	for range 50 {
		requireReplay(t, first, serve(h, typed(w.FormDataContentType(), body.String(), false)))
	}
}

// TestFormParsedOutsideIsTheSameAtEveryLength: where parsing stops to read does
// not count.
func TestFormParsedOutsideIsTheSameAtEveryLength(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := outside(t, parseMultipart, latch.Dedupe(l, byUser, time.Hour), created)
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
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestBodyConsumedOutsideIsRefused: a body that was read outside, and cannot be
// read again, never counts as an empty body. Nothing is claimed.
func TestBodyConsumedOutsideIsRefused(t *testing.T) {
	t.Parallel()
	jsonBody := func(chunked bool) *http.Request {
		return typed("application/json; charset=utf-8", `{"id":"1"}`, chunked)
	}
	problemJSON := func(chunked bool) *http.Request { return typed("application/merge-patch+json", `{"id":"1"}`, chunked) }
	form := func(chunked bool) *http.Request { return typed(urlencoded, "id=1", chunked) }
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
	none := func(r *http.Request) error { r.Body = http.NoBody; return nil }
	parsedFirst := func(r *http.Request) error { // which leaves JSON alone
		if err := r.ParseForm(); err != nil {
			return err
		}
		return consume(r)
	}
	tests := map[string]struct {
		read    func(*http.Request) error
		request func(chunked bool) *http.Request
		chunked bool // can be found out without a length too
	}{
		"JSON":                 {consume, jsonBody, true},
		"JSON, closed":         {consumeAndClose, jsonBody, true},
		"JSON, replaced":       {none, jsonBody, true},
		"JSON, ParseForm":      {parsedFirst, jsonBody, true},
		"other JSON":           {consume, problemJSON, true},
		"form":                 {consume, form, false},
		"form, closed":         {consumeAndClose, form, false},
		"multipart":            {consume, multi, true},
		"multipart, by reader": {readByParts, multi, true},
	}
	for name, tt := range tests {
		for _, chunked := range []bool{false, true} {
			if chunked && !tt.chunked {
				continue
			}
			store := memstore.New()
			l := newLocker(t, store)
			for guardName, guard := range map[string]func(http.Handler) http.Handler{
				"Idempotent":                  once(l),
				"Dedupe":                      latch.Dedupe(l, byUser, time.Hour),
				"WithFingerprint":             once(l, latch.WithFingerprint(keyfunc.JSON("/id"))),
				"WithFingerprint, skipped":    once(l, latch.WithFingerprint(func(*http.Request) (string, error) { return "", keyfunc.ErrSkip })),
				"key JSON":                    latch.Idempotent(l, byUser, keyfunc.JSON("/id")),
				"key Form":                    latch.Idempotent(l, byUser, keyfunc.Form("id")),
				"key JSON, optional":          latch.Idempotent(l, byUser, keyfunc.Optional(keyfunc.JSON("/id"))),
				"Lock with JSON":              latch.Lock(l, "order", keyfunc.JSON("/id")),
				"Lock with Form":              latch.Lock(l, "order", keyfunc.Hash(keyfunc.Form("id"))),
				"Lock with a join of several": latch.Lock(l, "order", keyfunc.Join(byUser, keyfunc.JSON("/id"))),
			} {
				t.Run(strings.Join([]string{name, guardName, map[bool]string{true: "chunked"}[chunked]}, " "), func(t *testing.T) {
					h := outside(t, tt.read, guard, mustNotRun(t))
					requireProblem(t, wantProblem{status: 500, kind: "body-consumed"}, serve(h, tt.request(chunked)))
				})
			}
			requireEmpty(t, store)
		}
	}
}

// requireEmpty checks that nothing was claimed.
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
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := io.WriteString(z, strings.Repeat("0123456789", 100))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	shorter := func(r *http.Request) error {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1
		return nil
	}
	unzip := func(r *http.Request) error {
		unzipped, err := gzip.NewReader(r.Body)
		r.Body = io.NopCloser(unzipped)
		return err
	}
	var tiny bytes.Buffer // longer than its content
	z = gzip.NewWriter(&tiny)
	_, err = io.WriteString(z, "{}")
	require.NoError(t, err)
	require.NoError(t, z.Close())
	tinyGzip := func() *http.Request {
		r := typed("application/json", tiny.String(), false)
		r.Header.Set("Content-Encoding", "gzip")
		r.Header.Set("Content-Length", strconv.Itoa(tiny.Len()))
		return r
	}
	for name, tt := range map[string]struct {
		read    func(*http.Request) error
		request *http.Request
		want    string
	}{
		"longer":                 {unzip, typed("text/plain", zipped.String(), false), strings.Repeat("0123456789", 100)},
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
		"empty":             {func(*http.Request) error { return nil }, typed("application/json", "", false), ""},
		"empty and chunked": {func(*http.Request) error { return nil }, typed("text/plain", "", true), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			h := outside(t, tt.read, once(l), func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			})
			w := serve(h, tt.request)
			require.Equal(t, 200, w.Code, w.Body)
			require.Equal(t, tt.want, w.Body.String())
		})
	}
}

// TestBodyConsumedOutsideWithChosenFingerprintIsServed: a service that decodes
// the body outside can choose the parts to compare.
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
	logger := lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))
	l := newLocker(t, memstore.New(), logger)
	for name, guard := range map[string]func(http.Handler) http.Handler{
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
		"plain": begin, "with a limit": limited, "wrapped": counted, "all of it": consume, "all of it, and closed": consumeAndClose,
	} {
		l := newLocker(t, memstore.New())
		for guardName, guard := range map[string]func(http.Handler) http.Handler{
			"Idempotent":     once(l),
			"Dedupe":         latch.Dedupe(l, byUser, time.Hour),
			"Lock with JSON": latch.Lock(l, "order", keyfunc.JSON("/id")),
		} {
			for _, h2 := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", guardName, ", HTTP/2: ", h2), func(t *testing.T) {
					t.Parallel()
					srv := httptest.NewUnstartedServer(outside(t, read, guard, mustNotRun(t)))
					srv.EnableHTTP2 = h2
					srv.StartTLS()
					t.Cleanup(srv.Close)
					for order, coding := range map[string]string{"order 1": "", "order 2": "identity", "order 3": "UTF-8"} {
						req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(order+"\n"+`{"id":"tea"}`))
						require.NoError(t, err)
						req.Header.Set("X-User-ID", "42")
						req.Header.Set("Idempotency-Key", "k")
						if coding != "" {
							req.Header.Set("Content-Encoding", coding)
						}
						resp, err := srv.Client().Do(req)
						require.NoError(t, err)
						body, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						require.NoError(t, err)
						require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
						require.Contains(t, string(body), "body-consumed")
					}
				})
			}
		}
	}
}
