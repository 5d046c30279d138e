package keyfunc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

func readAll(t *testing.T, body io.ReadCloser) string {
	t.Helper()
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	return string(data)
}

// seen is the request in a handler's view, behind a guard.
type seen struct {
	key, body, trailer string
	length             int64
	chunked            bool
}

// server runs f in front of a handler, on a copy of the request as the
// middleware does, and sends the value that the handler gets.
func server(t *testing.T, h2 bool, f keyfunc.Func) (*httptest.Server, <-chan seen) {
	t.Helper()
	handled := make(chan seen, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, "x"))
		k, err := f(r)
		if refusal, ok := errors.AsType[*keyfunc.Error](err); ok {
			w.WriteHeader(refusal.Status)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		handled <- seen{k, string(body), r.Trailer.Get("X-Sum"), r.ContentLength, len(r.TransferEncoding) > 0}
	}))
	srv.EnableHTTP2 = h2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, handled
}

func send(t *testing.T, srv *httptest.Server, change func(*http.Request), body io.Reader) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, body)
	require.NoError(t, err)
	change(req)
	res, err := srv.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}

func TestHandlerGetsTheBodyAsItWas(t *testing.T) {
	t.Parallel()
	big := `{"id":42,"name":"Ann","x":"` + strings.Repeat("x", 300_000) + `"}`
	form := multipartBody(t, part{"once", "", "42"}, part{"doc", "a.bin", strings.Repeat("\x00\xff\r\n", 20_000)})
	for name, c := range map[string]struct {
		f                 keyfunc.Func
		contentType, body string
		key               string
	}{
		"JSON":      {keyfunc.JSON("/id"), "application/json", big, "42"},
		"twice":     {keyfunc.Join(keyfunc.JSON("/id"), keyfunc.JSON("/name")), "application/json", big, "\x1f42&Ann"},
		"form":      {keyfunc.Form("once"), urlencoded, "a=b&once=42", "42"},
		"multipart": {keyfunc.Form("once"), multiparts, form, "42"},
		"both":      {keyfunc.Join(keyfunc.Optional(keyfunc.Form("once")), keyfunc.JSON("/id")), "application/json", big, ""},
	} {
		for _, h2 := range []bool{false, true} {
			proto := map[bool]string{false: " HTTP/1.1", true: " HTTP/2"}[h2]
			typed := func(r *http.Request) { r.Header.Set("Content-Type", c.contentType) }
			t.Run(name+proto, func(t *testing.T) {
				t.Parallel()
				srv, handled := server(t, h2, c.f)
				require.Equal(t, 200, send(t, srv, typed, strings.NewReader(c.body)))
				require.Equal(t, seen{c.key, c.body, "", int64(len(c.body)), false}, <-handled)
			})
			t.Run(name+proto+" chunked with trailer", func(t *testing.T) {
				t.Parallel()
				srv, handled := server(t, h2, c.f)
				require.Equal(t, 200, send(t, srv, func(r *http.Request) {
					typed(r)
					r.ContentLength = -1
					r.Trailer = http.Header{"X-Sum": {"123"}}
				}, strings.NewReader(c.body)))
				require.Equal(t, seen{c.key, c.body, "123", -1, !h2}, <-handled)
			})
		}
	}
}

// waitForContinue makes a client with "Expect: 100-continue" send no body until
// it is asked for it.
func waitForContinue(t *testing.T, srv *httptest.Server) {
	t.Helper()
	transport, ok := srv.Client().Transport.(*http.Transport)
	require.True(t, ok)
	transport.ExpectContinueTimeout = time.Minute
}

func TestTooLargeBodyIsNotEvenAskedFor(t *testing.T) {
	t.Parallel()
	srv, _ := server(t, false, keyfunc.JSON("/id"))
	waitForContinue(t, srv)
	var read atomic.Bool
	require.Equal(t, 413, send(t, srv, func(r *http.Request) {
		r.Header.Set("Expect", "100-continue")
		r.ContentLength = 1<<20 + 1
	}, readerFunc(func([]byte) (int, error) {
		read.Store(true)
		return 0, io.ErrUnexpectedEOF
	})))
	require.False(t, read.Load())
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestBodiesThatFail(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]keyfunc.Func{"JSON": keyfunc.JSON("/id"), "Form": keyfunc.Form("id")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := errors.New("client gone")
			r := post(urlencoded, "")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("id="+secret), iotest.ErrReader(gone)))
			refused(400, "cannot be read: reading the request body: client gone").check(t, f, r)
			_, err := f(r)
			require.ErrorIs(t, err, gone)

			r = post(urlencoded, "id="+secret)
			r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 5)
			refused(413, "cannot be read: the request body is too large").check(t, f, r)
		})
	}
}

func TestNoBody(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]keyfunc.Func{"JSON": keyfunc.JSON("/id"), "Form": keyfunc.Form("id")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, none := range []io.ReadCloser{nil, http.NoBody} {
				r := post(urlencoded, "")
				r.Body = none
				missing("").check(t, f, r)
				require.Equal(t, none, r.Body)
			}
			_, err := keyfunc.Optional(f)(post(urlencoded, ""))
			require.ErrorIs(t, err, keyfunc.ErrSkip)
		})
	}
}
