package middleware_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestUpstreamWithoutALimit: the largest limit means none.
func TestUpstreamWithoutALimit(t *testing.T) {
	t.Parallel()
	by := latch.Upstream(roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 201, ProtoMajor: 2, ContentLength: -1, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("order 1")), Request: r,
		}, nil
	}))
	h := once(newLocker(t, memstore.New()), latch.WithBodyLimits(math.MaxInt64, math.MaxInt64))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			req := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "http://orders.example/", http.NoBody)
			answer, err := by.RoundTrip(req)
			require.NoError(t, err)
			defer answer.Body.Close()
			w.WriteHeader(answer.StatusCode)
			_, _ = io.Copy(w, answer.Body)
		}))
	require.Equal(t, "order 1", serve(h, keyed("k")).Body.String())
	require.Equal(t, "order 1", serve(h, keyed("k")).Body.String())
}
