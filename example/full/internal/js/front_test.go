package js_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser/npm"
)

// source is the directory of the package.
const source = "../../../../js"

// bundle builds a file of testdata with the package as npm packs it.
func bundle(t *testing.T, entry string, external ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	npm.InstallPacked(t, dir, source, "httplatch")
	npm.Install(t, dir, npm.React...)
	content, err := os.ReadFile(filepath.Join("testdata", entry))
	require.NoError(t, err)
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
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	_, err = z.Write(code)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	t.Logf("%d bytes, %d compressed", len(code), packed.Len())
	require.Less(t, packed.Len(), 3000)
	require.Greater(t, packed.Len(), 500, "it is the package")
}

// front serves the page, and is a proxy before the desk that loses answers.
type front struct {
	url string

	mu      sync.Mutex
	desk    *desk
	keys    []string      // of the orders that were sent on
	fail    string        // X-Fail of the next one
	arrived chan struct{} // closed by the next order
	lose    int           // the next answers
	part    bool          // of an answer that is lost arrives
	hold    chan struct{} // answers wait for it
}

func startFront(t *testing.T, script []byte, d *desk) *front {
	t.Helper()
	f := &front{desk: d, arrived: make(chan struct{})}
	mux := http.NewServeMux()
	serve := func(path, mediaType string, content []byte) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			_, _ = w.Write(content)
		})
	}
	worker, err := os.ReadFile("testdata/worker.js")
	require.NoError(t, err)
	serve("/app.js", "text/javascript", script)
	serve("/worker.js", "text/javascript", worker)
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

// order sends an order on to the desk, also if its client has left, and loses the answer, or a
// part of it.
func (f *front) order(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	fail, d, hold := f.fail, f.desk, f.hold
	f.fail = ""
	close(f.arrived)
	f.arrived = make(chan struct{})
	f.mu.Unlock()

	out, err := http.NewRequest(r.Method, d.url+r.URL.String(), bytes.NewReader(body)) // it goes on
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	if fail != "" {
		out.Header.Set("X-Fail", fail)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
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
	maps.Copy(w.Header(), answer.Header)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(answer.StatusCode)
	if lost {
		_, _ = w.Write(text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text)
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

// sent returns the keys of all orders, once there are n.
func (f *front) sent(t *testing.T, n int) []string {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		keys, next := f.keys, f.arrived
		f.mu.Unlock()
		if len(keys) >= n {
			return keys
		}
		select {
		case <-next:
		case <-timeout.C:
			require.FailNow(t, "orders are missing", "%d of %d", len(keys), n)
		}
	}
}
