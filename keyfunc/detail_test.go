package keyfunc_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

// The client gets the name of the wrong value, which the program has chosen, and no fact about the server.
func TestDetailNamesWhatTheClientSends(t *testing.T) {
	t.Parallel()
	with := func(name string, values ...string) *http.Request {
		r := get("/?id=a&id=b")
		r.Header[name] = values
		return r
	}
	long := strings.Repeat("x", 2000)
	for name, tt := range map[string]struct {
		key    keyfunc.Func
		r      *http.Request
		detail string
	}{
		"no header":         {keyfunc.IdempotencyKey, get("/"), "The header Idempotency-Key is missing."},
		"long":              {keyfunc.IdempotencyKey, with("Idempotency-Key", long), "The header Idempotency-Key is over 255 bytes long; send less."},
		"other header":      {keyfunc.Header("X-Order"), get("/"), "The header X-Order is missing."},
		"control character": {keyfunc.Header("X-Order"), with("X-Order", "a\x01"), "The header X-Order has control characters; send it without."},
		"field":             {keyfunc.Form("once"), post("application/x-www-form-urlencoded", "a=b"), "The form field once is missing."},
		"parameter":         {keyfunc.Query("id"), get("/?id=a&id=b"), "The query parameter id is sent twice; send it once."},
		"path":              {keyfunc.PathValue("order"), get("/"), "The path value order is missing."},
		"pointer":           {keyfunc.JSON("/order/id"), post("application/json", `{"order":{}}`), "The JSON value /order/id is missing."},
		"no JSON": {
			keyfunc.JSON("/id"), post("application/json", `{`),
			"The JSON value /id cannot be read: the body is not exactly one JSON value in UTF-8; send one.",
		},
		"large": {
			keyfunc.JSON("/id"), post("application/json", string(bytes.Repeat([]byte(" "), 1<<20+1))),
			"The JSON value /id cannot be read: the request body is too large.",
		},
		"function, joined": {keyfunc.Join(keyfunc.Header("X-A"), constant("")), with("X-A", "a"), ""},
		"function, hashed": {keyfunc.Hash(constant("")), get("/"), ""},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			_, err := tt.key(tt.r)
			var refusal *keyfunc.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tt.detail, refusal.Detail)
		})
	}
}

func readAll(t *testing.T, body io.ReadCloser) string {
	t.Helper()
	data := must.Get(io.ReadAll(body))(t)
	require.NoError(t, body.Close())
	return string(data)
}

func TestBodiesThatFail(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]keyfunc.Func{"JSON": keyfunc.JSON("/id"), "Form": keyfunc.Form("id")} {
		parallel.Run(t, name, func(t *testing.T) {
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
