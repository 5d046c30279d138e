package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// timed is middleware that announces a trailer, and sends it in its own words
// for each request: the number of it.
func timed(next http.Handler) http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Add("Trailer", "Server-Timing, X-Outer")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", strconv.Itoa(n))
		next.ServeHTTP(w, r)
		w.Header().Set("Server-Timing", "total;dur="+strconv.Itoa(n))
	})
}

// trailed is an answer with its trailers.
type trailed struct {
	status          int
	header, trailer http.Header
	body            string
}

func withTrailers(t *testing.T, server *httptest.Server) trailed {
	t.Helper()
	res, err := server.Client().Do(clientRequest(t, server.URL, "k"))
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return trailed{res.StatusCode, res.Header, res.Trailer, string(body)}
}

// TestTrailersOfTheHandlerAreNotReplayed is the twin: whichever handler or
// middleware has announced them.
func TestTrailersOfTheHandlerAreNotReplayed(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(h http.Header) (late func()){
		"announced by the handler": func(h http.Header) func() {
			h.Add("Trailer", "X-Sum")
			return func() { h.Set("X-Sum", "1") }
		},
		"announced by both": func(h http.Header) func() {
			h.Set("Trailer", "server-timing, X-Sum")
			return func() { h.Set("X-Sum", "1") }
		},
		"taken away": func(h http.Header) func() {
			h.Add("Trailer", "X-Sum")
			h.Set("X-Sum", "0")
			return func() { h.Del("X-Sum") }
		},
		"announced outside": func(h http.Header) func() {
			return func() { h.Set("X-Outer", "1") }
		},
		"not announced": func(h http.Header) func() {
			return func() { h.Set(http.TrailerPrefix+"X-Sum", "1") }
		},
		"set again before the body": func(h http.Header) func() {
			h.Set(http.TrailerPrefix+"X-Unannounced", "by the handler")
			return func() {}
		},
		"set again": func(h http.Header) func() {
			return func() { h.Set(http.TrailerPrefix+"X-Unannounced", "by the handler") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, opts := range [][]latch.IdempotentOption{nil, {latch.WithBodyLimits(100, 1)}} {
				var e effects
				handler := func(w http.ResponseWriter, _ *http.Request) {
					late := answer(w.Header())
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, "ordered")
					late()
				}
				bare := withTrailers(t, startServer(t, timed(http.HandlerFunc(handler))))
				require.NotEmpty(t, bare.trailer)
				server := startServer(t, timed(once(newLocker(t, memstore.New(), patient), opts...)(e.then(handler))))
				require.Equal(t, bare.trailer, withTrailers(t, server).trailer)
				again := withTrailers(t, server)
				require.Equal(t, 409, again.status)
				require.Contains(t, again.body, "#result-not-replayable")
				e.require(t, 1)
			}
		})
	}
}

// TestHeadersSetTooLateAreNotSent, though trailers that are set with them are.
func TestHeadersSetTooLateAreNotSent(t *testing.T) {
	t.Parallel()
	for _, flush := range []bool{false, true} {
		w := serve(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Late", "1")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
			_, _ = io.WriteString(w, "ordered")
			if flush {
				_ = http.NewResponseController(w).Flush()
			}
		})), keyed("k"))
		res := w.Result()
		require.NoError(t, res.Body.Close())
		require.NotContains(t, res.Header, "X-Late")
		require.Equal(t, "1", res.Trailer.Get("X-Sum"))
	}
}
