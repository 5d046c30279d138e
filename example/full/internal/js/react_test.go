package js_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/example/full/internal/browser/npm"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

type shop struct {
	*browser.Page
	*testing.T
	front *front
}

var (
	building sync.Mutex
	script   []byte
)

func open(t *testing.T, query string) shop {
	t.Helper()
	building.Lock()
	if script == nil {
		script = bundle(t, "page.jsx")
	}
	building.Unlock()
	s := shop{browser.New(t), t, startFront(t, script)}
	s.Expect("net::ERR_")
	s.Expect("status of")
	s.Open(s.front.url + "/?" + query)
	s.AwaitText("p", "ready")
	return s
}

func (s shop) again() {
	s.Helper()
	s.Reload()
	s.AwaitText("p", "ready")
}

func (s shop) requireOrders(n int) {
	s.T.Helper()
	require.EqualValues(s.T, n, s.front.orders.Load())
}

// requireOne: there is one order, and all that was sent for it had one key.
func (s shop) requireOne() {
	s.T.Helper()
	s.AwaitText("p", "answer 201")
	s.requireOrders(1)
	for _, key := range s.front.keys {
		require.NotEmpty(s.T, key)
		require.Equal(s.T, s.front.keys[0], key)
	}
}

func (s shop) Helper() { s.T.Helper() }

// TestLostAnswer: the answer is lost, or breaks off in its body. The twin is a loop over fetch.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query  string
		part   bool
		orders int
	}{
		"none of it arrives":       {"", false, 1},
		"a part of it arrives":     {"", true, 1},
		"none of it, without this": {"plain", false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, tt.query)
			s.front.set(func() { s.front.lose, s.front.part = 2, tt.part })
			s.Click("button")
			s.AwaitText("p", "answer 201")
			s.requireOrders(tt.orders)
			if tt.orders > 1 {
				return
			}
			s.requireOne()
			require.Len(t, s.front.sent(t, 3), 3)
			s.Click("button")
			s.front.sent(t, 4)
			s.AwaitText("p", "answer 201")
			s.requireOrders(2)
		})
	}
}

// TestDoubleClick sends one request. The next click, after the answer, is another order.
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query        string
		sent, orders int
	}{"with the hook": {"", 1, 1}, "without": {"plain", 2, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, tt.query)
			s.front.set(func() { s.front.hold = make(chan struct{}) })
			click := s.Aim("button")
			click()
			s.front.sent(t, 1)
			click()
			s.Press(browser.Enter)
			s.front.sent(t, tt.sent)
			s.front.release()
			s.AwaitText("p", "answer 201")
			require.Eventually(t, func() bool { return s.front.orders.Load() >= int64(tt.orders) }, 30*time.Second, 20*time.Millisecond)
			if tt.sent == 1 {
				require.Len(t, s.front.sent(t, 1), 1)
				s.requireOne()
			}
		})
	}
}

// TestReload: the page is loaded again while the order is under way, and the same is ordered again.
func TestReload(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	s.front.set(func() { s.front.hold = make(chan struct{}) })
	s.Click("button")
	s.front.sent(t, 1)
	s.again()
	s.front.release()
	s.Click("button")
	s.requireOne()

	// Another article is another order.
	s.Type("input", "coffee")
	s.Click("button")
	keys := s.front.sent(t, 3)
	require.NotEqual(t, keys[0], keys[2])
}

// TestTabs: a copy of a tab has its keys, and a tab that was opened separately is another customer's
// intent.
func TestTabs(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	s.front.set(func() { s.front.hold = make(chan struct{}) })
	s.Click("button")
	s.front.sent(t, 1)
	tab := s.OpenTab(s.front.url)
	tab.AwaitText("p", "ready")
	tab.Click("button")
	s.front.sent(t, 2)
	s.front.release()
	tab.AwaitText("p", "answer 201")
	s.requireOne()

	other := browser.New(t)
	other.Open(s.front.url)
	other.Click("button")
	other.AwaitText("p", "answer 201")
	s.requireOrders(2)
}

func TestMain(m *testing.M) {
	testmain.AtOnce(2)
	goleak.VerifyTestMain(browser.Main(m))
}

// source is the directory of the package.
const source = "../../../../js"

func bundle(t *testing.T, entry string, external ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	npm.InstallPacked(t, dir, source, "httplatch")
	npm.Install(t, dir, npm.React...)
	content := must.Get(os.ReadFile(filepath.Join("testdata", entry)))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, entry), content, 0o600))
	made := api.Build(api.BuildOptions{
		EntryPoints:       []string{filepath.Join(dir, entry)},
		Bundle:            true,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		JSX:               api.JSXAutomatic,
		Format:            api.FormatESModule,
		External:          external,
		Define:            map[string]string{"process.env.NODE_ENV": `"production"`},
	})
	require.Empty(t, made.Errors)
	return made.OutputFiles[0].Contents
}

// TestSize: less than 3 kB compressed, with the hook.
func TestSize(t *testing.T) {
	t.Parallel()
	code := bundle(t, "all.js", "react")
	var packed bytes.Buffer
	z := must.Get(gzip.NewWriterLevel(&packed, gzip.BestCompression))(t)
	must.Get(z.Write(code))(t)
	require.NoError(t, z.Close())
	t.Logf("%d bytes, %d compressed", len(code), packed.Len())
	require.Less(t, packed.Len(), 3000)
	require.Greater(t, packed.Len(), 500, "it is the package")
}

type front struct {
	url    string
	orders atomic.Int64
	shop   http.Handler

	mu   sync.Mutex
	keys []string      // of the orders that have arrived
	lose int           // the next answers
	part bool          // of an answer that is lost arrives
	hold chan struct{} // answers wait for it
}

func startFront(t *testing.T, script []byte) *front {
	t.Helper()
	f := new(front)
	l := guardtest.NewLocker(t, memstore.New())
	f.shop = latch.Idempotent(l, keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "order %d", f.orders.Add(1))
	}))
	mux := http.NewServeMux()
	serve := func(path, mediaType string, content []byte) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			_, _ = w.Write(content)
		})
	}
	serve("/app.js", "text/javascript", script)
	serve("/{$}", "text/html", []byte(`<!doctype html><html lang="en"><title>Shop</title><link rel="icon" href="data:,"><main></main><script type="module" src="/app.js"></script>`))
	mux.HandleFunc("POST /orders", f.order)
	server := httptest.NewUnstartedServer(mux)
	// Chromium itself repeats a POST if a connection that it has used before breaks.
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(f.release)
	f.url = server.URL
	return f
}

// order places an order, also if its client has left, and loses the answer, or a part of it.
func (f *front) order(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	hold := f.hold
	f.mu.Unlock()

	answer := httptest.NewRecorder()
	f.shop.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	if hold != nil {
		<-hold
	}
	f.mu.Lock()
	lost, part := f.lose > 0, f.part
	f.lose--
	f.mu.Unlock()
	if lost && !part {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), answer.Header())
	w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
	w.WriteHeader(answer.Code)
	if lost {
		_, _ = w.Write(answer.Body.Next(answer.Body.Len() / 2))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = answer.Body.WriteTo(w)
}

func (f *front) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *front) release() {
	f.set(func() {
		if f.hold != nil {
			close(f.hold)
			f.hold = nil
		}
	})
}

func (f *front) sent(t *testing.T, n int) (keys []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		f.set(func() { keys = slices.Clone(f.keys) })
		return len(keys) >= n
	}, 30*time.Second, 5*time.Millisecond, "orders are missing")
	return keys
}
