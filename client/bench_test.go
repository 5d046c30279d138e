package client_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

// instant is a base without a cost, so that Transport is measured.
type instant struct{ body []byte }

func (b instant) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Header: r.Header, ContentLength: int64(len(b.body)),
		Body: io.NopCloser(bytes.NewReader(b.body)), Request: r,
	}, nil
}

// BenchmarkTransport is a request that succeeds at once, without a network; base is the
// same without Transport.
func BenchmarkTransport(b *testing.B) {
	order, answer := []byte(`{"sku":"tea","quantity":1}`), []byte(`{"id":"6J25NBC6PSYZRTTN7RBQMAPK55"}`)
	withBody := func() *http.Request {
		req := request(b.Context(), b, http.MethodPost, string(order))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer x")
		return req
	}
	for _, c := range []struct {
		name string
		rt   http.RoundTripper
		req  *http.Request
	}{
		{"base", instant{answer}, withBody()},
		{"POST", client.Transport(instant{answer}), withBody()},
		{"POST without a body", client.Transport(instant{answer}), request(b.Context(), b, http.MethodPost, "")},
		{"GET", client.Transport(instant{answer}), request(b.Context(), b, http.MethodGet, "")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, err := c.rt.RoundTrip(c.req)
				require.NoError(b, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

// TestAllocations: the cost that docs/clients.md states, which does not depend on the
// machine.
func TestAllocations(t *testing.T) {
	rt := client.Transport(instant{[]byte("order 1")})
	allocations := func(rt http.RoundTripper, req *http.Request) float64 {
		return testing.AllocsPerRun(100, func() {
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	for _, body := range []string{"", "tea"} {
		req := request(t.Context(), t, http.MethodPost, body)
		require.LessOrEqual(t, allocations(rt, req)-allocations(instant{[]byte("order 1")}, req), 10.0, "body %q", body)
	}
}
