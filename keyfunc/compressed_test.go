package keyfunc_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

// gzipped compresses content. name is in the header of gzip, as it is.
func gzipped(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Name = name
	_, err := io.WriteString(z, content)
	require.NoError(t, err)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := gzipped(t, tt.in, tt.zip)
			r := post(tt.contentType, body)
			r.Header.Set("Content-Encoding", "gzip")
			if tt.handler == "query" || tt.want == query {
				r.URL.RawQuery = "code=query"
			}
			tt.want.check(t, tt.f, r)
			require.Equal(t, tt.handler, r.FormValue("code"))
		})
	}
}
