package middleware_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inGzip answers in gzip, to clients that accept it.
func inGzip(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(answer.Code)
		z := gzip.NewWriter(w)
		_, _ = z.Write(answer.Body.Bytes())
		_ = z.Close()
	})
}

// TestCompressingServerOfCalls: a server behind a gateway compresses its answers, in which no replay could get the
// id of its call. Clients accept that without being asked to, such as fetch.
func TestCompressingServerOfCalls(t *testing.T) {
	t.Parallel()
	var s rpcServer
	server := httptest.NewServer(inGzip(&s))
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	gateway := startServer(t, rpcGuard(t)(proxyTo(t, target, upstream)))
	for _, id := range []string{"1", "2"} {
		r := clientRequest(t, gateway.URL, "k")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(buy(id, `{}`))), -1
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept-Encoding", "gzip, deflate, br")
		res, err := gateway.Client().Do(r)
		require.NoError(t, err)
		in := io.Reader(res.Body)
		if res.Header.Get("Content-Encoding") == "gzip" {
			in, err = gzip.NewReader(in)
			require.NoError(t, err)
		}
		body, err := io.ReadAll(in)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.JSONEq(t, `{"jsonrpc": "2.0", "result": {"id": "inner", "order": 1}, "id": `+id+`}`, string(body))
	}
	s.require(t, 1)
}
