package middleware_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// node is an order service in Node (testdata/upstream.js) that a test can restart.
type node struct {
	t      *testing.T
	orders string // a file with a line for each
	port   string // "": not started yet
	exited chan struct{}
}

const noNode = `no node: this test needs an upstream that is not Go.
Install it (apt-get install nodejs, brew install node, dnf install nodejs); npm comes with it, or brings it.`

func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, orders: filepath.Join(t.TempDir(), "orders"), port: "0"}
	n.start()
	return n
}

// start starts it, on the port that it had.
func (n *node) start() {
	n.t.Helper()
	testmain.SkipIn(n.t, testmain.Quick, "starts Node")
	path, err := exec.LookPath("node")
	if err != nil {
		testmain.Unavailable(n.t, noNode, err)
	}
	cmd := exec.CommandContext(n.t.Context(), path, "testdata/upstream.js")
	cmd.Env = append(os.Environ(), "PORT="+n.port, "ORDERS="+n.orders)
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // ends with this process
	require.NoError(n.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(n.t, err)
	require.NoError(n.t, cmd.Start())
	exited := make(chan struct{})
	n.exited = exited
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed is the normal end
	}()
	n.t.Cleanup(func() { <-exited })
	require.NoError(n.t, err)
	n.port = strings.TrimSpace(line)
}

func (n *node) requireOrders(want int, msg ...any) {
	n.t.Helper()
	noted, err := os.ReadFile(n.orders)
	if !os.IsNotExist(err) {
		require.NoError(n.t, err)
	}
	require.Equal(n.t, want, strings.Count(string(noted), "\n"), msg...)
}

// goOn has the stream go on that is open.
func (n *node) goOn() {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://127.0.0.1:"+n.port+"/go-on", nil)
	require.NoError(n.t, err)
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	require.NoError(n.t, err)
	require.NoError(n.t, answer.Body.Close())
}

// via is the way from a gateway to its upstream.
type via func(base http.RoundTripper) http.RoundTripper

var (
	upstream via = func(base http.RoundTripper) http.RoundTripper { return latch.Upstream(base) }
	plain    via = func(base http.RoundTripper) http.RoundTripper { return base }
)

// front is a gateway before a node.
type front struct {
	node   *node
	server *httptest.Server
}

// before starts a reverse proxy to n behind a guard.
func (n *node) before(via via, configure ...func(*httputil.ReverseProxy)) front {
	n.t.Helper()
	proxy := n.proxy(via)
	for _, c := range configure {
		c(proxy)
	}
	return front{n, startServer(n.t, once(newLocker(n.t, memstore.New()))(proxy))}
}

func (n *node) proxy(via via) *httputil.ReverseProxy {
	n.t.Helper()
	target, err := url.Parse("http://127.0.0.1:" + n.port)
	require.NoError(n.t, err)
	proxy := proxyTo(n.t, target, via)
	base := &http.Transport{ResponseHeaderTimeout: 3 * time.Second}
	n.t.Cleanup(base.CloseIdleConnections)
	proxy.Transport = via(base)
	return proxy
}

func (f front) request(ctx context.Context, what string) *http.Request {
	f.node.t.Helper()
	r := clientRequest(f.node.t, f.server.URL, "k").WithContext(ctx)
	r.Header.Set("X-Do", what)
	return r
}

// ask returns the answer, or the zero exchange if there is none or it is incomplete.
func (f front) ask(ctx context.Context, what string) exchange {
	f.node.t.Helper()
	return exchanged(f.node.t, f.server, f.request(ctx, what))
}

// repeat sends the request again, to an upstream that works by now.
func (f front) repeat(was string) (text string) {
	f.node.t.Helper()
	if strings.HasPrefix(was, "dies") {
		<-f.node.exited
		f.node.start()
	}
	return string(f.ask(f.node.t.Context(), "order").body)
}

// TestNodeUpstream: an upstream that has the order and does not say so. The repeat places
// none, and is not given half an answer. Through a plain transport it does, or is refused.
func TestNodeUpstream(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		first  int    // the status of the first answer; 0: it breaks off
		again  string // in the answer to the repeat
		orders int
		// Through a plain transport:
		plainAgain  string
		plainOrders int
	}{
		"order":                             {201, "order 1", 1, "order 1", 1},
		"chunks":                            {201, "order 1", 1, "#result-not-replayable", 1},
		"chunks, later":                     {201, "order 1", 1, "#result-not-replayable", 1},
		"long":                              {201, "#result-not-replayable", 1, "#result-not-replayable", 1},
		"fail":                              {500, "order 1", 2, "order 1", 2},
		"dies":                              {502, "#outcome-unknown", 1, "order 1", 2},
		"dies in the middle, with a length": {502, "#outcome-unknown", 1, "order 1", 2},
		"dies in the middle, in chunks":     {502, "#outcome-unknown", 1, "#result-not-replayable", 1},
		"hangs":                             {502, "#outcome-unknown", 1, "order 1", 2},
		"hangs up":                          {502, "#outcome-unknown", 1, "order 1", 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNode(t)
			f := n.before(upstream)
			require.Equal(t, tt.first, f.ask(t.Context(), name).status)
			require.Contains(t, f.repeat(name), tt.again)
			n.requireOrders(tt.orders)
		})
		t.Run(name+", plain", func(t *testing.T) {
			t.Parallel()
			n := startNode(t)
			f := n.before(plain)
			_ = f.ask(t.Context(), name)
			require.Contains(t, f.repeat(name), tt.plainAgain)
			n.requireOrders(tt.plainOrders, "this test can see a second order")
		})
	}
}

// TestNodeIsNotThere: a request that was not sent can be sent again.
func TestNodeIsNotThere(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	require.Equal(t, 502, n.before(upstream).ask(t.Context(), "dies").status)
	<-n.exited

	f := n.before(upstream)
	for range 2 {
		require.Equal(t, 502, f.ask(t.Context(), "order").status)
	}
	n.start()
	answer := f.ask(t.Context(), "order")
	require.Equal(t, 201, answer.status)
	require.Equal(t, "order 1", string(answer.body))
	n.requireOrders(2, "the one that killed it, and this one")
}

// TestNodeBehindAnotherGateway, which has no guard, and says 502 when the order is there.
func TestNodeBehindAnotherGateway(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	further := startServer(t, n.proxy(plain))
	f := n.before(upstream, func(p *httputil.ReverseProxy) {
		target, err := url.Parse(further.URL)
		require.NoError(t, err)
		p.Rewrite = func(r *httputil.ProxyRequest) { r.SetURL(target) }
	})
	require.Equal(t, 502, f.ask(t.Context(), "dies").status)
	require.Contains(t, f.repeat("dies"), "#outcome-unknown")
	n.requireOrders(1)
}

// TestNodeStreams: the stream of an upstream reaches the client in time.
func TestNodeStreams(t *testing.T) {
	t.Parallel()
	for what, want := range map[string][2]string{
		"events":     {"data: 1\n\n", "data: 2\n\n"},
		"unbuffered": {"half, ", "done"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := startNode(t)
			f := n.before(upstream)
			answer, err := f.server.Client().Do(f.request(t.Context(), what))
			require.NoError(t, err)
			begin := make([]byte, len(want[0]))
			_, err = io.ReadFull(answer.Body, begin)
			require.NoError(t, err)
			require.Equal(t, want[0], string(begin), "while the upstream waits")
			n.goOn()
			rest, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want[1], string(rest))
			require.Contains(t, f.repeat(what), "#result-not-replayable")
			n.requireOrders(1)
		})
	}
}

// TestNodeThroughAFlushingGateway: FlushInterval is for streams, and takes no answer with
// a length out of the record.
func TestNodeThroughAFlushingGateway(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"order", "chunks"} {
		for _, interval := range []time.Duration{-1, time.Nanosecond} {
			n := startNode(t)
			f := n.before(upstream, func(p *httputil.ReverseProxy) { p.FlushInterval = interval })
			for range 2 {
				answer := f.ask(t.Context(), what)
				require.Equal(t, 201, answer.status)
				require.Equal(t, "order 1", string(answer.body))
				require.Equal(t, "/orders/1", answer.header.Get("Location"))
			}
			n.requireOrders(1)
		}
	}
}

// TestClientOfAGatewayHangsUp: the order goes on, and the repeat gets its answer.
func TestClientOfAGatewayHangsUp(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	f := n.before(upstream, func(p *httputil.ReverseProxy) {
		send := p.Transport
		p.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond) // the client is gone after this time
			return send.RoundTrip(r)
		})
	})
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Zero(t, f.ask(hasty, "chunks").status)
	require.Eventually(t, func() bool {
		answer := f.ask(t.Context(), "chunks")
		return string(answer.body) == "order 1" && answer.header.Get("Idempotent-Replayed") == "true"
	}, 10*time.Second, 10*time.Millisecond)
	n.requireOrders(1)
}
