package latchcaddy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	_ "github.com/httplatch/httplatch/middleware/caddy"
)

// caddyArguments is the environment variable that makes this program a Caddy.
const caddyArguments = "LATCH_TEST_CADDY"

func TestMain(m *testing.M) {
	if args := os.Getenv(caddyArguments); args != "" {
		os.Args = append([]string{"caddy"}, strings.Fields(args)...)
		caddycmd.Main()
		return
	}
	goleak.VerifyTestMain(pgtest.Main(redistest.Main(m)),
		// Caddy keeps these for the life of its process.
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"))
}

// shop is an upstream that is no friend of its gateway: it places each order, and then does what X-Do says.
type shop struct {
	*httptest.Server

	mu      sync.Mutex
	orders  int
	arrived chan struct{}
	goOn    chan struct{}
	release func() // closes goOn, at the latest when the test ends
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{arrived: make(chan struct{}, 100), goOn: make(chan struct{})}
	s.release = sync.OnceFunc(func() { close(s.goOn) })
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Cleanup(s.release) // first: Close waits for handlers
	return s
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		if user := r.Header.Get("X-Session"); user != "" { // asked by forward_auth
			w.Header().Set("X-User", user)
		}
		_, _ = w.Write([]byte("open"))
		return
	}
	s.mu.Lock()
	s.orders++
	n := s.orders
	s.mu.Unlock()
	s.arrived <- struct{}{}
	switch do := r.Header.Get("X-Do"); do {
	case "lose the reply":
		panic(http.ErrAbortHandler)
	case "be late":
		select {
		case <-s.goOn:
		case <-r.Context().Done():
		}
	case "wait":
		<-s.goOn
	case "fail":
		http.Error(w, "no", http.StatusInternalServerError)
		return
	case "be busy":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "redirect":
		w.Header().Set("Location", fmt.Sprint("/orders/", n))
		w.WriteHeader(http.StatusSeeOther)
		return
	case "in chunks", "cut":
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, "order ")
		_ = http.NewResponseController(w).Flush()
		if do == "cut" {
			panic(http.ErrAbortHandler)
		}
		_, _ = fmt.Fprint(w, n)
		return
	}
	w.Header().Set("X-Was", r.Header.Get("X-Do"))
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "order %d of %q", n, body)
}

func (s *shop) placed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders
}

// gateway is the Caddy of this process, of which there is one: its tests are not parallel.
type gateway struct {
	t    *testing.T
	port int
}

// start runs Caddy with a Caddyfile. %PORT stands for its port.
func start(t *testing.T, text string) *gateway {
	t.Helper()
	g := &gateway{t, must.Get(process.FreePort())(t)}
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		require.NoError(t, caddy.Stop())
	})
	require.NoError(t, g.load(text))
	return g
}

// adapted returns the Caddyfile as JSON. It has the global options that tests need. Caddy cleans its
// storage in a goroutine for which Stop does not wait, and the directory ends with the test.
func (g *gateway) adapted(text string) ([]byte, error) {
	text = strings.ReplaceAll(text, "%PORT", fmt.Sprint(g.port))
	text = strings.Replace(text, "{", "{\nadmin off\npersist_config off\nauto_https off\nlog default {\noutput discard\n}\ngrace_period 20s\nstorage_check off\nstorage_clean_interval off\nstorage file_system "+g.t.TempDir(), 1)
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(caddyfile.Format([]byte(text)), map[string]any{"filename": "Caddyfile"})
	require.Empty(g.t, warnings)
	return config, err
}

// validate checks a configuration as the command caddy validate does.
func validate(t *testing.T, config []byte) error {
	t.Helper()
	var parsed *caddy.Config
	require.NoError(t, caddy.StrictUnmarshalJSON(config, &parsed))
	return caddy.Validate(parsed)
}

func (g *gateway) load(text string) error {
	config, err := g.adapted(text)
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// reload loads a configuration in place of another, which may still close connections for a moment.
func (g *gateway) reload(text string) {
	g.t.Helper()
	require.NoError(g.t, g.load(text))
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	require.Eventually(g.t, func() bool { return g.look("/").status != 0 }, patience, tick)
}

// answer is an answer to an order; its status is 0 if there is none.
type answer struct {
	status int
	body   string
	header http.Header
}

func (g *gateway) request(ctx context.Context, key, do string) *http.Request {
	g.t.Helper()
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/orders", g.port), strings.NewReader("tea")))(g.t)
	r.Header.Set("X-User", "42")
	r.Header.Set("X-Do", do)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

func send(t *testing.T, r *http.Request) answer {
	t.Helper()
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return answer{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}
	}
	return answer{res.StatusCode, string(bytes.TrimSpace(body)), res.Header}
}

func (g *gateway) order(key, do string) answer {
	g.t.Helper()
	return send(g.t, g.request(g.t.Context(), key, do))
}

// look sends a request of a safe method.
func (g *gateway) look(path string) answer {
	g.t.Helper()
	r := g.request(g.t.Context(), "", "")
	r.Method, r.Body, r.ContentLength, r.URL.Path = http.MethodGet, http.NoBody, 0, path
	return send(g.t, r)
}

// guarded is a Caddyfile with a guard before the shop; plain is the same without one.
func guarded(s *shop, store string) string {
	return `{
	latch {
		store ` + store + `
	}
}
http://127.0.0.1:%PORT {
	latch {
		idempotent orders {
			scope {header.X-User}
			key   optional-idempotency-key
		}
	}
	reverse_proxy ` + s.Listener.Addr().String() + ` {
		transport http {
			response_header_timeout 30s
		}
	}
}`
}

func plain(s *shop) string {
	return "{\n}\nhttp://127.0.0.1:%PORT {\nreverse_proxy " + s.Listener.Addr().String() +
		" {\ntransport http {\nresponse_header_timeout 30s\n}\n}\n}"
}

// impatient is the Caddyfile of a gateway that gives up an upstream which is late. The other
// gateways wait for as long as a busy machine may take.
func impatient(text string) string {
	return strings.ReplaceAll(text, "response_header_timeout 30s", "response_header_timeout 1s")
}

// receive waits for a signal, for longer than a busy machine takes.
func receive(t *testing.T, from <-chan struct{}) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-from:
	case <-late.C:
		t.Fatal("no signal")
	}
}

const (
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)
