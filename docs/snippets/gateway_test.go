package snippets_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func gatewayTo(orders *url.URL, locker *lock.Locker) http.Handler {
	once := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.ResponseHeaderTimeout = 30 * time.Second
	base.IdleConnTimeout = 4 * time.Second // before the upstream's: Node hangs up after 5

	return once(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(orders) },
		Transport: latch.Upstream(base),
	})
}

// dying is an upstream that has each order and never answers.
func dying(t *testing.T) (orders *url.URL, placed *atomic.Int64) {
	t.Helper()
	placed = new(atomic.Int64)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		placed.Add(1)
		panic(http.ErrAbortHandler)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	orders, err := url.Parse(server.URL)
	require.NoError(t, err)
	return orders, placed
}

func TestGateway(t *testing.T) {
	orders, placed := dying(t)
	gateway := gatewayTo(orders, lock.New(memstore.New()))
	require.Equal(t, 502, send(gateway, "/orders", "k").Code)
	again := send(gateway, "/orders", "k")
	require.Equal(t, 409, again.Code)
	require.Contains(t, again.Body.String(), "#outcome-unknown")
	require.EqualValues(t, 1, placed.Load())
}

// TestGatewayOfEcho: another reverse proxy, with Upstream and without.
func TestGatewayOfEcho(t *testing.T) {
	for name, tt := range map[string]struct {
		transport http.RoundTripper
		placed    int64
	}{"Upstream": {latch.Upstream(nil), 1}, "plain": {http.DefaultTransport, 2}} {
		orders, placed := dying(t)
		e := echo.New()
		e.Logger.SetOutput(io.Discard)
		e.POST("/orders", echo.NotFoundHandler, echomiddleware.ProxyWithConfig(echomiddleware.ProxyConfig{
			Balancer:  echomiddleware.NewRoundRobinBalancer([]*echomiddleware.ProxyTarget{{URL: orders}}),
			Transport: tt.transport,
		}))
		gateway := once(lock.New(memstore.New()))(e)
		require.Equal(t, 502, send(gateway, "/orders", "k").Code, name)
		_ = send(gateway, "/orders", "k")
		require.Equal(t, tt.placed, placed.Load(), name)
	}
}

func shipRoutes(locker *lock.Locker, carrier string) http.Handler {
	mux := http.NewServeMux()
	once := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
	client := &http.Client{Transport: latch.Upstream(nil), Timeout: 10 * time.Second}

	mux.Handle("POST /parcels", once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := ship(r.Context(), client, carrier); err != nil {
			http.Error(w, "the carrier did not take it", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))

	return mux
}

func ship(ctx context.Context, client *http.Client, carrier string) error {
	// The context of the handler's request says which run it is of.
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, carrier, bytes.NewReader([]byte(`{"to":"42"}`)))
	if err != nil {
		return err
	}
	answer, err := client.Do(call)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func TestGatewayCallsOutOfHandlers(t *testing.T) {
	carrier, placed := dying(t)
	h := shipRoutes(lock.New(memstore.New()), carrier.String())
	require.Equal(t, 502, send(h, "/parcels", "k").Code)
	require.Equal(t, 409, send(h, "/parcels", "k").Code)
	require.EqualValues(t, 1, placed.Load())
}
