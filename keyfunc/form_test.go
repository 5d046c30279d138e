package keyfunc_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

const (
	urlencoded = "application/x-www-form-urlencoded"
	boundary   = "xyz"
	multiparts = "multipart/form-data; boundary=" + boundary
)

// part is a field of a multipart form, a file if it has a file name.
type part struct{ name, file, value string }

func multipartBody(t *testing.T, parts ...part) string {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary(boundary))
	for _, p := range parts {
		var to io.Writer
		var err error
		if p.file == "" {
			to, err = w.CreateFormField(p.name)
		} else {
			to, err = w.CreateFormFile(p.name, p.file)
		}
		require.NoError(t, err)
		must.Get(io.WriteString(to, p.value))(t)
	}
	require.NoError(t, w.Close())
	return b.String()
}

func TestForm(t *testing.T) {
	t.Parallel()
	absent := missing("keyfunc: form field once is missing; send it in the body, as a form")
	for name, c := range map[string]struct {
		contentType, body string
		want              outcome
	}{
		"escaped":    {urlencoded, "%6Fnce=4%32", key("42")},
		"charset":    {urlencoded + "; charset=UTF-8", "once=42", key("42")},
		"other case": {urlencoded, "Once=1&once=42", key("42")},
		"no body":    {urlencoded, "", absent},
		"twice":      {urlencoded, "once=" + secret + "&once=2", refused(400, "form field once is sent twice")},
		"semicolon":  {urlencoded, "once=" + secret + ";x=1", refused(400, "does not parse")},
		"bad escape": {urlencoded, "once=42&x=" + secret + "%zz", refused(400, "does not parse")},
		"control":    {urlencoded, "once=" + secret + "%0D", refused(400, "control characters")},
		"joined":     {urlencoded, "once=%1F" + secret + "%26x", refused(400, "control characters")},
		"long":       {urlencoded, "once=" + secret + strings.Repeat("x", 1024), refused(400, "over 1024 bytes")},
		"huge":       {urlencoded, "once=" + strings.Repeat("x", 1<<20), refused(413, "the request body is too large")},
		"no type":    {"", "once=42", absent},
		"mixed":      {"multipart/mixed; boundary=" + boundary, multipartBody(t, part{"once", "", "42"}), absent},

		"multipart with a file":    {multiparts, multipartBody(t, part{"doc", "a.pdf", "x\ny"}, part{"once", "", "42"}), key("42")},
		"multipart twice":          {multiparts, multipartBody(t, part{"once", "", secret}, part{"once", "", "2"}), refused(400, "sent twice")},
		"multipart file":           {multiparts, multipartBody(t, part{"once", "a.txt", secret}), refused(400, "is sent as a file; send it as a value")},
		"multipart value and file": {multiparts, multipartBody(t, part{"once", "", secret}, part{"once", "a.txt", "x"}), refused(400, "sent as a file")},
		"multipart cut off":        {multiparts, multipartBody(t, part{"once", "", "42"})[:60], refused(400, "does not parse")},
		"multipart no boundary":    {"multipart/form-data", "once=42", refused(400, "does not parse")},
		"multipart many parts":     {multiparts, strings.Repeat("--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n", 2000), refused(400, "does not parse")},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := post(c.contentType, c.body)
			if c.contentType == "" {
				r.Header.Del("Content-Type")
			}
			c.want.check(t, keyfunc.Form("once"), r)
			require.Equal(t, c.body, readAll(t, r.Body))
			require.Nil(t, r.Form)
			require.Nil(t, r.PostForm)
			require.Nil(t, r.MultipartForm)
		})
	}
}

// Only the body counts, and r.FormValue never finds another value than the key.
func TestFormAndTheQuery(t *testing.T) {
	t.Parallel()
	multi := multipartBody(t, part{"once", "", "body"})
	for query, want := range map[string]outcome{
		"Once=query&bad=%zz;":       key("body"),
		"once=query":                refused(400, "keyfunc: form field once is in the query, too; send it in the body only"),
		"once=":                     refused(400, "is in the query, too"),
		"once=" + secret + "&x=%zz": refused(400, "is in the query, too"),
	} {
		for contentType, body := range map[string]string{urlencoded: "once=body", multiparts: multi} {
			r := httptest.NewRequest(http.MethodPost, "/?"+query, strings.NewReader(body))
			r.Header.Set("Content-Type", contentType)
			want.check(t, keyfunc.Form("once"), r)
			if want.key != "" {
				require.Equal(t, want.key, r.FormValue("once"))
			}
		}
	}

	r := httptest.NewRequest(http.MethodPost, "/?once=query", strings.NewReader("a=b"))
	r.Header.Set("Content-Type", urlencoded)
	missing("form field once").check(t, keyfunc.Form("once"), r)
	require.Equal(t, "query", r.FormValue("once"))
	require.Empty(t, r.PostFormValue("once"))
}

// A body that was parsed already is empty; the values parsed out of it count.
func TestFormThatWasParsedBefore(t *testing.T) {
	t.Parallel()
	r := post(urlencoded, "once=42")
	require.NoError(t, r.ParseForm())
	key("42").check(t, keyfunc.Form("once"), r)
	require.Equal(t, url.Values{"once": {"42"}}, r.PostForm)

	r = post(multiparts, multipartBody(t, part{"once", "", "42"}, part{"doc", "a.pdf", "x"}))
	require.NoError(t, r.ParseMultipartForm(1<<20))
	key("42").check(t, keyfunc.Form("once"), r)
	refused(400, "sent as a file").check(t, keyfunc.Form("doc"), r)

	// ParseForm leaves a multipart body alone.
	r = post(multiparts, multipartBody(t, part{"once", "", "42"}))
	require.NoError(t, r.ParseForm())
	key("42").check(t, keyfunc.Form("once"), r)
	require.Empty(t, r.PostForm)
	require.NoError(t, r.ParseMultipartForm(1<<20))
	require.Equal(t, "42", r.PostForm.Get("once"))

	// After MultipartReader, the rest is not a form.
	r = post(multiparts, multipartBody(t, part{"once", "", "42"}))
	must.Get(r.MultipartReader())(t)
	key("42").check(t, keyfunc.Form("once"), r)

	r = post(multiparts, multipartBody(t, part{"once", "", "42"}))
	must.Get(must.Get(r.MultipartReader())(t).NextPart())(t)
	refused(500, "was read before").check(t, keyfunc.Form("once"), r)
}

// gzipped compresses content. name is in the header of gzip, as it is.
func gzipped(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Name = name
	must.Get(io.WriteString(z, content))(t)
	require.NoError(t, z.Close())
	return b.String()
}

// TestCompressedBytesAreNoForm: a handler that does not decompress must not find another value in the
// bytes than the key, or two requests for one thing would have two keys.
func TestCompressedBytesAreNoForm(t *testing.T) {
	t.Parallel()
	field := func(value string) string { return multipartBody(t, part{"code", "", value}) }
	file := multipartBody(t, part{"code", "a.txt", "b"})
	both := refused(400, "keyfunc: form field code is in the compressed bytes, too; send it in the form only")
	query := refused(400, "keyfunc: query parameter code is in the form, too; send it in the URL only")
	for name, tt := range map[string]struct {
		f                    keyfunc.Func
		contentType, in, zip string // in the compressed bytes, and compressed
		want                 outcome
		handler              string // what a handler that does not decompress finds
	}{
		"form":              {keyfunc.Form("code"), urlencoded, "", "code=a", key("a"), ""},
		"form, named":       {keyfunc.Form("code"), urlencoded, "a.txt", "code=a", key("a"), ""},
		"two forms":         {keyfunc.Form("code"), urlencoded, "&code=b&", "code=a", both, "b"},
		"only in the bytes": {keyfunc.Optional(keyfunc.Form("code")), urlencoded, "&code=b&", "x=a", both, "b"},
		"parts":             {keyfunc.Form("code"), multiparts, "", field("a"), key("a"), ""},
		"two times parts":   {keyfunc.Form("code"), multiparts, "\r\n" + field("b"), field("a"), both, "b"},
		"a file":            {keyfunc.Form("code"), multiparts, "\r\n" + file, field("a"), both, ""},
		"query":             {keyfunc.Query("code"), urlencoded, "", "x=a", key("query"), "query"},
		"query and form":    {keyfunc.Query("code"), urlencoded, "", "code=a", query, "query"},
		"query and bytes":   {keyfunc.Query("code"), urlencoded, "&code=b&", "x=a", query, "b"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := post(tt.contentType, gzipped(t, tt.in, tt.zip))
			r.Header.Set("Content-Encoding", "gzip")
			if tt.handler == "query" || tt.want == query {
				r.URL.RawQuery = "code=query"
			}
			tt.want.check(t, tt.f, r)
			require.Equal(t, tt.handler, r.FormValue("code"))
		})
	}
}
