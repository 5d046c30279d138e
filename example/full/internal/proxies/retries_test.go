package proxies_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// failing is a proxy in front of two servers that fail in the way that the path of a request says.
type failing struct {
	t        *testing.T
	url      string
	received atomic.Int64 // POSTs of both
	servers  []*httptest.Server
}

func startFailing(t *testing.T, k kind, lines string) *failing {
	t.Helper()
	f := &failing{t: t}
	for range 2 {
		server := httptest.NewServer(f)
		t.Cleanup(server.Close)
		f.servers = append(f.servers, server)
	}
	f.url = "http://" + k.start(t, lines, f.servers[0].Listener.Addr().String(), f.servers[1].Listener.Addr().String()).addr()
	return f
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	if err == nil && r.Method == http.MethodPost {
		f.received.Add(1)
	}
	w.Header().Set("Cache-Control", "no-store")
	switch path.Base(r.URL.Path) {
	case "late":
		<-r.Context().Done() // the proxy has given up
		fallthrough
	case "broken":
		panic(http.ErrAbortHandler)
	case "busy":
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// post sends a POST over a connection that the client has used or not, and returns how often a
// server has received it, and what the client gets.
func (f *failing) post(to, body, key string, used bool) (received int64, gets string) {
	f.t.Helper()
	c := newClient(f.t)
	if used {
		f.read(c)
	}
	f.received.Store(0)
	req := must.Get(http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+to, io.NopCloser(strings.NewReader(body))))(f.t) // net/http cannot send it again
	if req.ContentLength = int64(len(body)); body == "" {
		req.Body = http.NoBody
	}
	if key != "" {
		req.Header["idempotency-key"] = []string{key} // nor does it if it does not know the header
	}
	resp, err := c.Do(req)
	if err != nil {
		return f.received.Load(), "nothing"
	}
	_ = resp.Body.Close()
	return f.received.Load(), fmt.Sprintf("`%d`", resp.StatusCode)
}

// read leaves the proxy with a used connection to each server.
func (f *failing) read(c *http.Client) {
	f.t.Helper()
	for range 4 {
		resp, err := c.Get(f.url + "/orders")
		require.NoError(f.t, err)
		require.Equal(f.t, http.StatusOK, resp.StatusCode)
		_ = resp.Body.Close()
	}
}

// measure returns the cells of the table: how often a POST with a key is received, and what
// clients get.
func (f *failing) measure() string {
	f.t.Helper()
	count := func(to, body string) (cell, gets string) {
		n, gets := f.post(to, body, "key", false)
		require.Positive(f.t, n, "%s: %s", to, gets)
		return map[bool]string{true: "1", false: "2+"}[n == 1], gets
	}
	broken, atBroken := count("/orders/broken", "order")
	f.read(newClient(f.t))
	reused, _ := count("/orders/broken", "")
	late, atLate := count("/orders/late", "order")
	busy, _ := count("/orders/busy", "order")
	if _, kept := f.post("/orders/broken", "order", "", true); kept != atBroken {
		atBroken += " or " + kept
	}
	return fmt.Sprintf("%s | %s | %s | %s | %s | %s |", broken, reused, late, busy, atBroken, atLate)
}

// measureDown returns the cell for what clients get if one of the servers takes no connection.
func (f *failing) measureDown() string {
	f.t.Helper()
	closed := f.servers[0]
	closed.Close()
	// A process that another test starts at the moment of Close has a copy of the listener until it executes its
	// program: its connections are reset after the proxy has sent the request.
	require.Eventually(f.t, func() bool { return !listens(closed.Listener.Addr().String()) }, time.Minute, time.Millisecond)
	var all []string
	for range 4 {
		_, gets := f.post("/orders", "order", "key", false)
		all = append(all, gets)
	}
	slices.Sort(all)
	return strings.ReplaceAll(strings.Join(slices.Compact(all), " or "), "`200`", "the answer")
}

// TestRetries: docs/proxies.md has what the proxies do, by default and with its lines.
func TestRetries(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies")
	t.Parallel()
	text := must.Get(os.ReadFile(page))(t)
	for _, k := range []kind{nginx, haproxy, apache, varnish, caddy} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.requireVersion(t)
			name := k.name + " " + k.version
			rows := map[string]string{name: k.bare}
			if k.language != "" && k.name != caddy.name { // its lines need a newer one: middleware/caddy tests them
				rows[name+", these lines"] = k.lines(t)
			}
			for name, lines := range rows {
				row := fmt.Sprintf("| %s | %s | %s", name, startFailing(t, k, lines).measureDown(), startFailing(t, k, lines).measure())
				t.Log(row)
				if !strings.Contains(string(text), row+"\n") {
					t.Errorf("%s does not have the row\n%s", page, row)
				}
			}
		})
	}
}

// TestRetriesNeedAKey: with the lines of docs/proxies.md, a POST that no guard recognises is sent
// once.
func TestRetriesNeedAKey(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies")
	t.Parallel()
	for _, k := range []kind{nginx, haproxy, caddy} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f := startFailing(t, k, k.lines(t))
			for _, to := range []string{"/broken", "/late", "/busy"} { // nginx has only lines for /orders
				n, gets := f.post(to, "order", "", false)
				require.EqualValues(t, 1, n, "%s: %s", to, gets)
			}
		})
	}
}
