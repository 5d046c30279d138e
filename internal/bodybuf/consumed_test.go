package bodybuf_test

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

func TestConsumed(t *testing.T) {
	t.Parallel()
	form := func(r *http.Request) { r.PostForm = url.Values{"a": {"1"}} }
	files := func(r *http.Request) {
		r.MultipartForm = &multipart.Form{File: map[string][]*multipart.FileHeader{"f": nil}}
	}
	empty := func(r *http.Request) { // as ParseForm and MultipartReader leave them
		r.PostForm, r.MultipartForm = make(url.Values), &multipart.Form{}
	}
	closed := iotest.ErrReader(http.ErrBodyReadAfterClose)
	tests := []struct {
		name        string
		body        io.Reader // nil: http.NoBody
		length      int64
		contentType string
		parsed      func(r *http.Request)
		want        error
	}{
		{"announced", strings.NewReader(""), 3, "", nil, bodybuf.ErrConsumed},
		{"announced, replaced", nil, 3, "", nil, bodybuf.ErrConsumed},
		{"announced, closed", closed, 3, "", nil, bodybuf.ErrConsumed},
		{"announced, parsed", strings.NewReader(""), 3, "", form, nil},
		{"announced, parsed and closed", closed, 3, "", form, nil},
		{"announced, files", strings.NewReader(""), 3, "", files, nil},
		{"announced, empty forms", strings.NewReader(""), 3, "multipart/form-data", empty, bodybuf.ErrConsumed},
		{"chunked", strings.NewReader(""), -1, "", nil, nil},
		{"chunked text", strings.NewReader(""), -1, "text/plain", nil, nil},
		{"chunked JSON", strings.NewReader(""), -1, "Application/JSON; charset=utf-8", nil, bodybuf.ErrConsumed},
		{"chunked JSON of a kind", strings.NewReader(""), -1, "application/problem+json; =", nil, bodybuf.ErrConsumed},
		{"chunked multipart", strings.NewReader(""), -1, "multipart/form-data; boundary=b", nil, bodybuf.ErrConsumed},
		{"chunked multipart, parsed", strings.NewReader(""), -1, "multipart/form-data; boundary=b", files, nil},
		{"chunked, closed", closed, -1, "", nil, bodybuf.ErrConsumed},
		{"none", strings.NewReader(""), 0, "application/json", nil, nil},
	}
	for _, tt := range tests {
		for _, limited := range []bool{false, true} {
			parallel.Run(t, fmt.Sprint(tt.name, " ", limited), func(t *testing.T) {
				r, _ := request(tt.body, tt.length)
				if tt.body == nil {
					r.Body = http.NoBody
				}
				r.Header.Set("Content-Type", tt.contentType)
				if tt.parsed != nil {
					tt.parsed(r)
				}
				if limited {
					bodybuf.Limit(r, 10)
				}
				for range 2 {
					data, err := bodybuf.Bytes(r, 10)
					require.Empty(t, data)
					if tt.want == nil {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, tt.want)
					}
				}
			})
		}
	}
}

// What was read through a body with a limit is known to be gone, if only a part of it was.
func TestConsumedBehindLimit(t *testing.T) {
	t.Parallel()
	r, _ := request(strings.NewReader("12345678"), -1)
	bodybuf.Limit(r, 10)
	must.Get(r.Body.Read(make([]byte, 1)))(t)
	require.ErrorIs(t, must.Err(bodybuf.Bytes(r, 10)), bodybuf.ErrConsumed)
	bodybuf.Unlimit(r)
	require.NoError(t, iotest.TestReader(r.Body, []byte("2345678")))
}

func TestUnlimit(t *testing.T) {
	t.Parallel()
	r, src := request(strings.NewReader("12345678"), 8)
	bodybuf.Unlimit(r)
	require.Same(t, src, r.Body)
	bodybuf.Limit(r, 10)
	bodybuf.Unlimit(r)
	require.Same(t, src, r.Body)

	bodybuf.Limit(r, 10)
	must.Get(bodybuf.Bytes(r, 10))(t)
	bodybuf.Unlimit(r)
	require.NoError(t, iotest.TestReader(r.Body, []byte("12345678")))
}

func TestRewind(t *testing.T) {
	t.Parallel()
	r, src := request(strings.NewReader("12345678"), 8)
	bodybuf.Rewind(r)
	require.Same(t, src, r.Body)
	for _, want := range []error{errClose, nil} {
		must.Get(bodybuf.Bytes(r, 8))(t)
		must.Get(io.CopyN(io.Discard, r.Body, 3))(t)
		require.Equal(t, want, r.Body.Close())
		bodybuf.Rewind(r)
		require.NoError(t, iotest.TestReader(r.Body, []byte("12345678")))
	}
	require.Equal(t, 1, src.closed)

	// The limit of a guard is that of the reader that reads the body again.
	r, _ = request(strings.NewReader("12345678"), 8)
	bodybuf.Limit(r, 8)
	must.Get(bodybuf.Bytes(r, 1))(t)
	must.Get(io.CopyN(io.Discard, r.Body, 3))(t)
	bodybuf.Rewind(r)
	must.Get(bodybuf.Bytes(r, 1))(t)

	// One that was refused goes on in the client's.
	for _, ended := range []error{nil, errors.New("gone")} {
		body := io.Reader(strings.NewReader("12345678"))
		if ended != nil {
			body = io.MultiReader(strings.NewReader("1234"), iotest.ErrReader(ended))
		}
		r, _ = request(body, -1)
		require.Error(t, must.Err(bodybuf.Bytes(r, 5)))
		must.Get(io.CopyN(io.Discard, r.Body, 3))(t)
		bodybuf.Rewind(r)
		data, err := io.ReadAll(r.Body)
		require.ErrorIs(t, err, ended)
		require.Equal(t, map[bool]string{true: "12345678", false: "1234"}[ended == nil], string(data))
	}
}
