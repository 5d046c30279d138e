package snippets_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/klauspost/compress/gzhttp"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// refusing is a service that refuses until free is called, and how it refuses.
type refusing struct {
	opts   latch.IdempotentOption // of its guard; nil: the handler refuses by itself
	own    func(w http.ResponseWriter, r *http.Request, p *latch.Problem)
	accept string
	says   string // in the body
}

func formats() map[string]refusing {
	none := latch.With()
	return map[string]refusing{
		"problem+json":             {opts: none, says: "docs/problems.md#in-progress"},
		"page":                     {opts: none, accept: "text/html", says: "Still being processed"},
		"ACP":                      {opts: latch.ACP(), says: "idempotency_in_flight"},
		"UCP":                      {opts: latch.UCP(), says: "in_progress"},
		"Stripe":                   {opts: latch.Stripe(), says: "idempotency_key_in_use"},
		"WithErrorHandler":         {opts: latch.WithErrorHandler(writeRefusal), says: "TRY_AGAIN"},
		"a handler with ServeHTTP": {own: func(w http.ResponseWriter, r *http.Request, p *latch.Problem) { p.ServeHTTP(w, r) }, says: "docs/problems.md#held"},
		"a handler with Respond":   {own: func(w http.ResponseWriter, r *http.Request, p *latch.Problem) { p.Respond(w, r, writeRefusal) }, says: "DUPLICATE"},
	}
}

// service returns the service. Its order is taken until free is called.
func (f refusing) service(t *testing.T) (h http.Handler, free func()) {
	t.Helper()
	l := newLocker(t, memstore.New(), lock.WithWait(time.Millisecond))
	order := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	if f.own != nil {
		lease, err := l.Acquire(t.Context(), "order")
		require.NoError(t, err)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := l.Do(r.Context(), "order", func(context.Context) error { order(w, r); return nil })
			if p := latch.ProblemOf(err); p != nil {
				f.own(w, r, p)
			}
		}), func() { require.NoError(t, lease.Release(context.WithoutCancel(t.Context()))) }
	}
	entered, release, runs := make(chan struct{}), make(chan struct{}), new(atomic.Int64)
	h = latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey, f.opts)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			close(entered)
			<-release
		}
		order(w, r)
	}))
	done := make(chan struct{})
	go func() { // the first request with the key
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), f.request(t.Context(), "/orders"))
	}()
	<-entered
	return h, func() { close(release); <-done }
}

func (f refusing) request(ctx context.Context, target string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(`{"sku":"tea"}`))
	r.RequestURI = ""
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "gzip")
	if f.accept != "" {
		r.Header.Set("Accept", f.accept)
	}
	return r
}

// codings are what is between a service and its gateway.
func codings(t *testing.T) map[string]func(http.Handler) http.Handler {
	t.Helper()
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(1))
	require.NoError(t, err)
	return map[string]func(http.Handler) http.Handler{
		"plain":        func(h http.Handler) http.Handler { return h },
		"chi, gzip":    middleware.Compress(5, "application/*", "text/*"),
		"gzhttp, gzip": func(h http.Handler) http.Handler { return wrap(h) },
	}
}

// serving returns the URL of a server.
func serving(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// TestGatewayKeepsNoRefusal: a service refuses in each format, plain and compressed. Its guarded
// gateway passes that on, and the next try gets the order.
func TestGatewayKeepsNoRefusal(t *testing.T) {
	t.Parallel()
	for format, f := range formats() {
		for coding, coded := range codings(t) {
			t.Run(format+", "+coding, func(t *testing.T) {
				t.Parallel()
				h, free := f.service(t)
				to, err := url.Parse(serving(t, coded(h)))
				require.NoError(t, err)
				// The gateway keeps whatever it may keep, also a 503.
				guard := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey, latch.WithFinal(func(int) bool { return true }))
				gateway := serving(t, guard(&httputil.ReverseProxy{
					Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
					Transport: latch.Upstream(&http.Transport{DisableKeepAlives: true}),
				}))
				ask := func() (status int, body string) {
					resp, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(f.request(t.Context(), gateway+"/orders"))
					require.NoError(t, err)
					defer resp.Body.Close()
					from := io.Reader(resp.Body)
					if strings.Contains(coding, "gzip") && resp.StatusCode >= 400 {
						require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
						from, err = gzip.NewReader(resp.Body)
						require.NoError(t, err)
					}
					text, err := io.ReadAll(from)
					require.NoError(t, err)
					return resp.StatusCode, string(text)
				}
				status, body := ask()
				require.Contains(t, []int{409, 503}, status)
				require.Contains(t, body, f.says)
				free()
				status, body = ask()
				require.Equal(t, http.StatusCreated, status, body)
			})
		}
	}
}
