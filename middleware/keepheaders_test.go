package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// headerValues are the values of a header that middleware outside of a guard sets, one
// for the first request and one for its repeat.
type headerValues struct {
	name         string
	first, again string
}

// describing are headers that describe the body of an answer, or restrict its use.
var describing = []headerValues{
	{"Content-Type", "application/json", "text/html; charset=utf-8"},
	{"Content-Language", "de", "en"},
	{"Content-Security-Policy", "script-src 'nonce-1'", "script-src 'nonce-2'"},
	{"Content-Disposition", "attachment", "inline"},
	{"content-location", "/orders/1.de", "/orders/1.en"},
	{"ETag", `"1"`, `"2"`},
	{"Last-Modified", "Tue, 24 Nov 2026 12:00:00 GMT", "Tue, 24 Nov 2026 12:00:01 GMT"},
}

// behind returns h behind middleware that sets v by the number of the request.
func (v headerValues) behind(h http.Handler) http.Handler {
	requests := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header()[v.name] = []string{v.first}
		if requests > 1 {
			w.Header()[v.name] = []string{v.again}
		}
		h.ServeHTTP(w, r)
	})
}

// A body is replayed under the headers that it was first sent with, even where
// middleware outside of the guard has set them, and the handler the same, or nothing.
func TestAReplayIsDescribedAsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	const script = `{"name":"<script>alert(1)</script>"}`
	for _, v := range describing {
		for handler, set := range map[string]func(http.Header){
			"sets nothing":       func(http.Header) {},
			"sets the same":      func(h http.Header) { h[v.name] = []string{v.first} },
			"adds to it":         func(h http.Header) { h[v.name] = append(h[v.name], v.first+"-x") },
			"sets its own value": func(h http.Header) { h[v.name] = []string{v.first + "-own"} },
		} {
			t.Run(v.name+", the handler "+handler, func(t *testing.T) {
				t.Parallel()
				h := v.behind(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					set(w.Header())
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, script)
				})))
				requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
			})
		}
	}
}

// The twin: other headers of outer middleware belong to its own request, unless
// WithKeepHeaders names them.
func TestOtherHeadersOfOuterMiddlewareAreOfTheRepeat(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(created)
	coding := headerValues{"Content-Encoding", "gzip", "identity"}.behind(once(newLocker(t, memstore.New()))(answer))
	require.Equal(t, "gzip", serve(coding, keyed("k")).Header().Get("Content-Encoding"))
	require.Equal(t, "identity", serve(coding, keyed("k")).Header().Get("Content-Encoding"), "of the middleware that compresses")

	id := headerValues{"X-Request-Id", "1", "2"}
	h := id.behind(once(newLocker(t, memstore.New()))(answer))
	require.Equal(t, "1", serve(h, keyed("k")).Header().Get("X-Request-Id"))
	require.Equal(t, "2", serve(h, keyed("k")).Header().Get("X-Request-Id"))

	for _, names := range [][]string{{"X-Request-Id"}, {"x-request-ID", "X-Other"}} {
		h = id.behind(once(newLocker(t, memstore.New()), latch.WithKeepHeaders(names[0]), latch.WithKeepHeaders(names...))(answer))
		requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
	}
}

func TestKeepHeadersRefusesWhatIsNeverKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Set-Cookie", "set-cookie", "Authorization", "Connection", "Content-Length", "Date", "Proxy-X", "", "not a token", "Idempotent-Replayed"} {
		require.PanicsWithValue(t, fmt.Sprintf("middleware.WithKeepHeaders(%q): no answer is kept with this header", name),
			func() { latch.WithKeepHeaders("X-Kept", name) })
	}
	require.PanicsWithValue(t, "middleware.WithKeepHeaders: no name", func() { latch.WithKeepHeaders() })
}

// A handler that changes a value in place, after it has begun its answer, changes
// neither the answer nor its record, as in net/http.
func TestValuesThatAreChangedInPlaceAreNotSent(t *testing.T) {
	t.Parallel()
	runs := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header()["X-Order"] = []string{"first", strconv.Itoa(runs)}
		w.WriteHeader(http.StatusCreated)
		w.Header()["X-Order"][0] = "changed"
	})
	server := httptest.NewServer(once(newLocker(t, memstore.New()))(handler))
	defer server.Close()
	for _, replayed := range []string{"", "true"} {
		r := keyed("k")
		request, err := http.NewRequestWithContext(t.Context(), r.Method, server.URL+r.URL.Path, r.Body)
		require.NoError(t, err)
		request.Header = r.Header
		resp, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, replayed, resp.Header.Get("Idempotent-Replayed"))
		require.Equal(t, []string{"first", "1"}, resp.Header.Values("X-Order"))
	}
}

// The headers that outer middleware reads after the guard has returned do not change, although the
// guard uses its memory for other answers.
func TestHeadersOutliveTheGuardsMemory(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Order", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Order", "changed")
	}))
	seen := make(map[string]http.Header)
	for _, key := range []string{"a", "b", "c"} {
		seen[key] = serve(h, keyed(key)).Header()
	}
	for key, header := range seen {
		require.Equal(t, []string{key}, header["X-Order"])
	}
}
