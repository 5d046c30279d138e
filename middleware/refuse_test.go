package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	latch "github.com/httplatch/httplatch/middleware"
)

// TestRefuse: a key that nothing would look at is refused, and all else passes.
func TestRefuse(t *testing.T) {
	t.Parallel()
	var done effects
	h := latch.Refuse()(done.then(created))
	for _, method := range []string{"POST", "DELETE", "PROPPATCH"} {
		r := keyed("k")
		r.Method = method
		requireProblem(t, wantProblem{status: 400, kind: "key-not-supported"}, serve(h, r))
	}
	twice := keyed("k")
	twice.Header.Add("Idempotency-Key", "l")
	empty := keyed("k")
	empty.Header.Set("Idempotency-Key", "")
	for _, r := range []*http.Request{twice, empty} {
		require.Equal(t, 400, serve(h, r).Code)
	}
	require.Zero(t, done.n.Load())

	safe := keyed("k")
	safe.Method = "QUERY"
	require.Equal(t, 201, serve(h, safe).Code)
	require.Equal(t, 201, serve(h, keyed("")).Code, "without a key")

	page := submission("a=b")
	page.Header.Set("Idempotency-Key", "k")
	page.Header.Del("Sec-Fetch-Mode") // as over HTTP without TLS
	require.Contains(t, serve(h, page).Body.String(), `content="key-not-supported"`)
}

// The headers are those of Firefox 153 under the preference network.http.idempotencyKey.enabled.
func TestRefuseLetsFormsOfBrowsersPass(t *testing.T) {
	t.Parallel()
	h := latch.Refuse()(http.HandlerFunc(created))
	for name, tt := range map[string]struct {
		key, mode, contentType string
		status                 int
	}{
		"form":              {`"13579265083415678952"`, "navigate", urlencoded, 201},
		"form with a file":  {`"13579265083415678952"`, "navigate", "multipart/form-data; boundary=b", 201},
		"script":            {`"13583514950784370745"`, "cors", "text/plain;charset=UTF-8", 400},
		"script, same site": {`"824233911594064098"`, "same-origin", "application/json", 400},
		"no browser":        {`"1"`, "", urlencoded, 400},
	} {
		r := typed(tt.contentType, "a=b", false)
		r.Header.Set("Idempotency-Key", tt.key)
		if tt.mode != "" {
			r.Header.Set("Sec-Fetch-Mode", tt.mode)
		}
		require.Equal(t, tt.status, serve(h, r).Code, name)
	}
}
