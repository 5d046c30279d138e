package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestAnswerThatEndsWithItsConnection: nothing shows whether such an answer is whole, so that no repeat gets it. The
// proxy flushes it, also where the flush has no effect.
func TestAnswerThatEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	unflushed := func(h http.Handler) http.Handler { // as behind the writers of many loggers
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		})
	}
	for name, guard := range map[string]func(h http.Handler) http.Handler{
		"streamed": once(newLocker(t, memstore.New(), patient)),
		"no flush": func(h http.Handler) http.Handler {
			l := newLocker(t, memstore.New())
			return unflushed(once(l)(guardOutside(t)(latch.Lock(l, "user", byUser)(h))))
		},
		"in a transaction": once(newLocker(t, faketx.New(), lock.WithTransaction())),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWire(t, whole, func(int) string { return "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nor" })
			server := startServer(t, guard(proxyTo(t, w.url(), upstream)))
			first := exchanged(t, server, clientRequest(t, server.URL, "k"))
			require.Equal(t, "or", string(first.body))
			again := exchanged(t, server, clientRequest(t, server.URL, "k"))
			require.Contains(t, string(again.body), "#result-not-replayable")
			require.EqualValues(t, 1, w.posts.Load())
		})
	}
}

// TestOwnAnswerAfterSuchACall: a handler that gives its own answer, with a length, is not the one that was cut off.
func TestOwnAnswerAfterSuchACall(t *testing.T) {
	t.Parallel()
	w := startWire(t, whole, func(int) string { return "HTTP/1.0 200 OK\r\n\r\nor" })
	client := latch.Upstream(&http.Transport{DisableKeepAlives: true})
	server := startServer(t, once(newLocker(t, memstore.New()))(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, w.url().String(), nil)
		require.NoError(t, err)
		require.NoError(t, sendBy(t, client, call))
		out.Header().Set("Content-Length", "5")
		_, err = out.Write([]byte("order"))
		require.NoError(t, err)
		flush(out)
	})))
	for range 2 {
		require.Equal(t, "order", string(exchanged(t, server, clientRequest(t, server.URL, "k")).body))
	}
	require.EqualValues(t, 1, w.posts.Load())
}
