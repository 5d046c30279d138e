package keyfunc_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

// TestDetailNamesWhatTheClientSends: the client gets the name of the wrong value, which the program
// has chosen, and no fact about the server.
func TestDetailNamesWhatTheClientSends(t *testing.T) {
	t.Parallel()
	with := func(name string, values ...string) *http.Request {
		r := get("/?id=a&id=b")
		r.Header[name] = values
		return r
	}
	long := strings.Repeat("x", 2000)
	tests := map[string]struct {
		key    keyfunc.Func
		r      *http.Request
		detail string
	}{
		"no header":         {keyfunc.IdempotencyKey, get("/"), "The header Idempotency-Key is missing."},
		"two":               {keyfunc.IdempotencyKey, with("Idempotency-Key", "a", "b"), "The header Idempotency-Key is sent twice."},
		"long":              {keyfunc.IdempotencyKey, with("Idempotency-Key", long), "The header Idempotency-Key is over 255 bytes long."},
		"other header":      {keyfunc.Header("X-Order"), get("/"), "The header X-Order is missing."},
		"control character": {keyfunc.Header("X-Order"), with("X-Order", "a\x01"), "The header X-Order has control characters."},
		"field":             {keyfunc.Form("once"), post("application/x-www-form-urlencoded", "a=b"), "The form field once is missing."},
		"parameter":         {keyfunc.Query("id"), get("/?id=a&id=b"), "The query parameter id is sent twice."},
		"path":              {keyfunc.PathValue("order"), get("/"), "The path value order is missing."},
		"pointer":           {keyfunc.JSON("/order/id"), post("application/json", `{"order":{}}`), "The JSON value /order/id is missing."},
		"no JSON": {
			keyfunc.JSON("/id"), post("application/json", `{`),
			"The JSON value /id cannot be read: the body is not exactly one JSON value in UTF-8.",
		},
		"large": {
			keyfunc.JSON("/id"), post("application/json", string(bytes.Repeat([]byte(" "), 1<<20+1))),
			"The JSON value /id cannot be read: the request body is too large.",
		},
		"joined":           {keyfunc.Join(keyfunc.Header("X-A"), keyfunc.IdempotencyKey), with("X-A", "a"), "The header Idempotency-Key is missing."},
		"function, joined": {keyfunc.Join(keyfunc.Header("X-A"), constant("")), with("X-A", "a"), ""},
		"function, hashed": {keyfunc.Hash(constant("")), get("/"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.key(tt.r)
			var refusal *keyfunc.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tt.detail, refusal.Detail)
		})
	}
}
