package snippets_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
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
	orders = must.Get(url.Parse(server.URL))(t)
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

// language is how the upstream that is written in it is run, of docs/gateway.md and testdata.
type language struct {
	program string
	args    []string // %PORT is its port
	files   []string // of the page, its blocks in this language in their order
}

var languages = map[string]language{
	"js":     {"node", []string{"shop.js"}, []string{"shop.js"}},
	"python": {"python3", []string{"-B", "serve.py"}, nil},
	"php":    {"php", []string{"-q", "-d", "auto_prepend_file=length.php", "-S", "127.0.0.1:%PORT"}, []string{"length.php"}},
}

const noProgram = `this test runs the lines of docs/gateway.md in each of its languages.
Install them (apt-get install nodejs python3 php-cli, brew install node python php, dnf install nodejs python3 php-cli).`

// foreign is an order service that is not Go, which docs/gateway.md has or links to.
type foreign struct {
	url  *url.URL
	file string // of its orders
}

func startForeign(t *testing.T, name string, l language) *foreign {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "starts "+l.program)
	path, err := exec.LookPath(l.program)
	if err != nil {
		testmain.Unavailable(t, noProgram, err)
	}
	port := must.Get(process.FreePort())(t)
	addr, dir := net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/upstreams")))
	for _, b := range walk.Blocks(t, "../gateway.md") {
		if b.Language == name {
			require.NotEmpty(t, l.files, "the page has more than this test runs")
			text := strings.ReplaceAll(b.Text, "3000", fmt.Sprint(port))
			require.NoError(t, os.WriteFile(filepath.Join(dir, l.files[0]), []byte(text), 0o600))
			l.files = l.files[1:]
		}
	}
	require.Empty(t, l.files, "the page has these no more")
	f := &foreign{&url.URL{Scheme: "http", Host: addr}, filepath.Join(dir, "placed")}
	require.NoError(t, os.WriteFile(f.file, nil, 0o600))

	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, strings.Fields(strings.ReplaceAll(strings.Join(l.args, " "), "%PORT", fmt.Sprint(port)))...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "ORDERS="+f.file, fmt.Sprint("PORT=", port))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // killed is its normal end
	})
	require.Eventually(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		return err == nil && conn.Close() == nil
	}, 30*time.Second, 10*time.Millisecond, "%s does not listen", l.program)
	return f
}

func (f *foreign) gateway(t *testing.T, opts ...latch.UpstreamOption) http.Handler {
	t.Helper()
	base := &http.Transport{DisableKeepAlives: true}
	return once(lock.New(memstore.New()))(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(f.url) },
		Transport: latch.Upstream(base, opts...),
	})
}

func (f *foreign) requireOrders(t *testing.T, want int) {
	t.Helper()
	require.Equal(t, want, strings.Count(string(must.Get(os.ReadFile(f.file))(t)), "\n"))
}

func ordered(gateway http.Handler, key, user, does string) *httptest.ResponseRecorder {
	return do(gateway, http.MethodPost, "/orders", "tea", "X-User-ID", user, "Idempotency-Key", key, "X-Do", does)
}

// TestUpstreamsInOtherLanguages runs the lines of docs/gateway.md behind a gateway that speaks with
// them.
func TestUpstreamsInOtherLanguages(t *testing.T) {
	t.Parallel()
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startForeign(t, name, l)
			gateway := f.gateway(t, latch.WithUpstreamHeaders())

			first := ordered(gateway, "plain", "42", "")
			require.Equal(t, 201, first.Code, first.Body)
			again := ordered(gateway, "plain", "42", "")
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, first.Body.String(), again.Body.String())
			f.requireOrders(t, 1)

			require.Equal(t, 503, ordered(gateway, "busy", "42", "is busy").Code)
			f.requireOrders(t, 1)
			require.Equal(t, 201, ordered(gateway, "busy", "42", "").Code, "nothing was done, so it is sent again")
			f.requireOrders(t, 2)

			require.Equal(t, 503, ordered(gateway, "mail", "42", "sends no mail").Code)
			again = ordered(gateway, "mail", "42", "")
			require.Equal(t, 503, again.Code, "the order is there, and so is this answer")
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			f.requireOrders(t, 3)

			forgetful := f.gateway(t, latch.WithUpstreamHeaders())
			require.Equal(t, 201, ordered(forgetful, "plain", "42", "").Code)
			f.requireOrders(t, 3) // it has the key of the first
			require.Equal(t, 201, ordered(forgetful, "plain", "43", "").Code)
			f.requireOrders(t, 4) // another user's key
		})
	}
}

// TestUpstreamsWithoutTheHeaders is the twin: a gateway that does not listen does not know that
// nothing was done.
func TestUpstreamsWithoutTheHeaders(t *testing.T) {
	t.Parallel()
	gateway := startForeign(t, "php", languages["php"]).gateway(t)
	require.Equal(t, 503, ordered(gateway, "busy", "42", "is busy").Code)
	require.Contains(t, ordered(gateway, "busy", "42", "").Body.String(), "#outcome-unknown")
}
