package proxies_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// server is one of two that fail in the way that the path of a request says.
type server struct {
	net.Listener

	received *atomic.Int64 // POSTs of both
}

func startServer(t *testing.T, received *atomic.Int64) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{ln, received}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // a proxy keeps idle connections
	for r := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if req.Method == http.MethodPost {
			s.received.Add(1)
		}
		answer := "200 OK"
		switch path.Base(req.URL.Path) {
		case "broken":
			return
		case "late":
			_, _ = r.Peek(1) // until the proxy gives up
			return
		case "busy":
			answer = "503 Service Unavailable"
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 "+answer+"\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}

// failing is a proxy in front of two servers that fail.
type failing struct {
	t        *testing.T
	url      string
	received atomic.Int64
	servers  []*server
}

func startFailing(t *testing.T, k kind, lines string) *failing {
	t.Helper()
	f := &failing{t: t}
	for range 2 {
		f.servers = append(f.servers, startServer(t, &f.received))
	}
	f.url = "http://" + k.start(t, lines, f.servers[0].Addr().String(), f.servers[1].Addr().String()).addr()
	return f
}

// post sends a POST over a connection that the client has used or not, and returns how often a
// server has received it, and what the client gets.
func (f *failing) post(to, body, key string, used bool) (received int64, gets string) {
	f.t.Helper()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: base, Timeout: time.Minute}
	if used {
		f.read(c)
	}
	f.received.Store(0)
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+to, io.NopCloser(strings.NewReader(body))) // net/http cannot send it again
	require.NoError(f.t, err)
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
		req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+"/orders", http.NoBody)
		require.NoError(f.t, err)
		resp, err := c.Do(req)
		require.NoError(f.t, err)
		require.Equal(f.t, http.StatusOK, resp.StatusCode)
		_ = resp.Body.Close()
	}
}

// measure returns the cells of the table: how often a POST with a key is received, and what
// clients get.
func (f *failing) measure() string {
	f.t.Helper()
	count := func(to, body string, used bool) (cell, gets string) {
		if used {
			base := &http.Transport{}
			f.read(&http.Client{Transport: base})
			base.CloseIdleConnections()
		}
		n, gets := f.post(to, body, "key", false)
		require.Positive(f.t, n, "%s: %s", to, gets)
		return map[bool]string{true: "1", false: "2+"}[n == 1], gets
	}
	broken, atBroken := count("/orders/broken", "order", false)
	reused, _ := count("/orders/broken", "", true)
	late, atLate := count("/orders/late", "order", false)
	busy, _ := count("/orders/busy", "order", false)
	if _, kept := f.post("/orders/broken", "order", "", true); kept != atBroken {
		atBroken += " or " + kept
	}
	return fmt.Sprintf("%s | %s | %s | %s | %s | %s |", broken, reused, late, busy, atBroken, atLate)
}

// measureDown returns the cell for what clients get if one of the servers takes no connection.
func (f *failing) measureDown() string {
	f.t.Helper()
	require.NoError(f.t, f.servers[0].Close())
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
	text, err := os.ReadFile(page)
	require.NoError(t, err)
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
