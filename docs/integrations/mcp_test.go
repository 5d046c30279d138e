package integrations_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// order is the argument of the tool that has an effect.
type order struct {
	SKU string `json:"sku"`
	Key string `json:"idempotency_key,omitempty"`
}

// agentShop is an MCP server with one tool that has an effect, and one that has none.
type agentShop struct {
	orders, searches atomic.Int64
	ordering         func(ctx context.Context) // called in each order, after its effect
}

func (s *agentShop) server(t *testing.T) *mcp.Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "order"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ order) (*mcp.CallToolResult, any, error) {
		n := s.orders.Add(1)
		if s.ordering != nil {
			s.ordering(ctx)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("order ", n)}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("search ", s.searches.Add(1))}}}, nil, nil
	})
	t.Cleanup(func() { // of agents that have lost their connection
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	return server
}

// mcpRoutes serves tools at /mcp. Each call of a tool that may have an effect needs a key.
func mcpRoutes(locker *lock.Locker, server *mcp.Server, opts *mcp.StreamableHTTPOptions) http.Handler {
	once := latch.Idempotent(locker, keyfunc.Header("X-Agent-ID"), keyfunc.IdempotencyKey,
		latch.JSONRPC(func(method, tool string) bool { return method == "tools/call" && tool != "search" }))

	tools := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, opts)
	mux := http.NewServeMux()
	mux.Handle("/mcp", once(tools))
	return mux
}

// mcpModes are the ways in which the SDK serves a call.
var mcpModes = map[string]*mcp.StreamableHTTPOptions{
	"events":            {},
	"JSON":              {JSONResponse: true},
	"events, stateless": {Stateless: true},
}

// cuts is a client's network, whose next connection breaks off after some bytes of the answer.
type cuts struct {
	mu    sync.Mutex
	armed bool
	after int
	saw   int // bytes of the connection that was armed last
}

func (c *cuts) arm(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.after, c.saw = true, after, 0
}

func (c *cuts) client() *http.Client {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && c.armed {
			c.armed = false
			return &cutConn{Conn: conn, of: c}, nil
		}
		return conn, err
	}
	return &http.Client{Transport: agentHeader{&http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// seen returns how many bytes of the answer have come.
func (c *cuts) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saw
}

type cutConn struct {
	net.Conn
	of *cuts
}

func (c *cutConn) Read(p []byte) (int, error) {
	c.of.mu.Lock()
	left := c.of.after - c.of.saw
	c.of.mu.Unlock()
	if left == 0 {
		_ = c.Close()
		return 0, errors.New("the connection is cut")
	}
	n, err := c.Conn.Read(p[:min(left, len(p))])
	c.of.mu.Lock()
	c.of.saw += n
	c.of.mu.Unlock()
	return n, err
}

// agentHeader names the agent, as its authentication would.
type agentHeader struct{ base http.RoundTripper }

func (a agentHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Agent-ID", "agent")
	return a.base.RoundTrip(r)
}

// agent opens a session.
func agent(t *testing.T, url string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	require.NoError(t, err)
	return session
}

// buy calls the tool, and returns its text.
func buy(ctx context.Context, session *mcp.ClientSession, key string) (string, error) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "order", Arguments: order{SKU: "tea", Key: key}})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

// TestMCPCutAtEveryByte: the official SDK calls a tool over a connection that breaks off after each byte
// of the answer, and calls it again in a new session, with another id. There is one order for each
// key, and the agent learns of it.
func TestMCPCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for name, mode := range mcpModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s agentShop
			server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New(), lock.WithWait(time.Minute)), s.server(t), mode))
			t.Cleanup(server.Close)
			var network cuts
			client := network.client()
			lost, whole := 0, false
			for cut := 0; !whole; cut++ {
				key := fmt.Sprint("key-of-the-agent-", cut)
				session := agent(t, server.URL+"/mcp", client)
				network.arm(cut)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				text, err := buy(ctx, session, key)
				whole = network.seen() < cut // there was no more to cut off
				if err != nil {
					lost++
					next := agent(t, server.URL+"/mcp", client)
					text, err = buy(ctx, next, key)
					_ = next.Close()
				}
				cancel()
				require.NoError(t, err, "cut after %d bytes", cut)
				require.Equal(t, fmt.Sprint("order ", cut+1), text, "cut after %d bytes", cut)
				require.EqualValues(t, cut+1, s.orders.Load(), "cut after %d bytes", cut)
				_ = session.Close() // not before: see TestMCPSessionEndsInACall
			}
			t.Logf("%d connections, %d answers lost, %d orders", s.orders.Load(), lost, s.orders.Load())
			require.Greater(t, lost, 100)
		})
	}
}

// TestMCPSessionEndsInACall: an agent that has lost its connection ends its session while its call runs, so that the
// server has nowhere to send the result. Repeats learn that the outcome is unknown, not an answer
// without a result. A server without sessions has nothing to end.
func TestMCPSessionEndsInACall(t *testing.T) {
	t.Parallel()
	for name, mode := range mcpModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ordered, closed := make(chan struct{}), make(chan struct{})
			s := agentShop{ordering: func(context.Context) {
				close(ordered)
				<-closed
			}}
			server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New(), lock.WithWait(time.Minute)), s.server(t), mode))
			t.Cleanup(server.Close)
			client := new(cuts).client()
			session := agent(t, server.URL+"/mcp", client)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-ordered
				cancel()
			}()
			_, err := buy(ctx, session, "k")
			require.ErrorIs(t, err, context.Canceled)
			_ = session.Close()
			close(closed)

			session = agent(t, server.URL+"/mcp", client)
			text, err := buy(t.Context(), session, "k")
			require.NoError(t, session.Close())
			if mode.Stateless {
				require.NoError(t, err)
				require.Equal(t, "order 1", text)
			} else {
				var refused *jsonrpc.Error
				require.ErrorAs(t, err, &refused)
				require.Contains(t, string(refused.Data), `"code":"outcome_unknown"`)
			}
			require.EqualValues(t, 1, s.orders.Load())
		})
	}
}

// TestMCPWithoutAGuard is the twin: each lost answer is another order.
func TestMCPWithoutAGuard(t *testing.T) {
	t.Parallel()
	var s agentShop
	server := httptest.NewServer(unguardedTools(s.server(t), nil))
	t.Cleanup(server.Close)
	var network cuts
	client := network.client()
	session := agent(t, server.URL, client)
	network.arm(10)
	_, err := buy(t.Context(), session, "k")
	require.Error(t, err)
	_ = session.Close()
	session = agent(t, server.URL, client)
	_, err = buy(t.Context(), session, "k")
	require.NoError(t, err)
	require.NoError(t, session.Close())
	require.EqualValues(t, 2, s.orders.Load())
}

// mcpCaller calls the tool n times at once with one key, and returns the text of each answer or error.
type mcpCaller func(t *testing.T, url, key string, n int) []string

// callBySDK has a session for each five calls, so that some calls share their id, and others do not.
func callBySDK(t *testing.T, url, key string, n int) []string {
	t.Helper()
	answers := make([]string, n)
	client := new(cuts).client()
	var wg sync.WaitGroup
	for some := range slices.Chunk(answers, 5) {
		session := agent(t, url+"/mcp", client)
		defer func() { _ = session.Close() }()
		for i := range some {
			wg.Go(func() {
				text, err := buy(t.Context(), session, key)
				if err != nil {
					text = err.Error()
				}
				some[i] = text
			})
		}
	}
	wg.Wait()
	return answers
}

// callByPython is an agent in another language, whose ids are strings. It fails if an answer has not the id of its call.
func callByPython(t *testing.T, url, key string, n int) []string {
	t.Helper()
	out, err := exec.Command("python3", "testdata/agent.py", strings.TrimPrefix(url, "http://"), key, strconv.Itoa(n)).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		testmain.Unavailable(t, "apt-get install python3", err)
	}
	require.NoError(t, err, "%s", out)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// unguardedTools is the twin of mcpRoutes.
func unguardedTools(server *mcp.Server, opts *mcp.StreamableHTTPOptions) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, opts)
}

// TestMCPAtOnce: ten calls with one key are one order. Each has its answer under its own id, or its caller
// would wait for ever. Without the guard they are ten.
func TestMCPAtOnce(t *testing.T) {
	t.Parallel()
	const calls = 10
	type row struct {
		call mcpCaller
		mode string
		bare bool
	}
	tests := map[string]row{
		"Python":               {call: callByPython, mode: "events, stateless"},
		"Python without guard": {call: callByPython, mode: "events, stateless", bare: true},
		"SDK without guard":    {call: callBySDK, mode: "events", bare: true},
	}
	for mode := range mcpModes {
		tests["SDK, "+mode] = row{call: callBySDK, mode: mode}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arrived sync.WaitGroup
			arrived.Add(calls)
			s := agentShop{ordering: func(context.Context) { arrived.Wait() }}
			h := mcpRoutes(newLocker(t, memstore.New(), lock.WithWait(time.Minute)), s.server(t), mcpModes[tt.mode])
			if tt.bare {
				h = unguardedTools(s.server(t), mcpModes[tt.mode])
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err == nil && bytes.Contains(body, []byte("tools/call")) {
					arrived.Done()
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				h.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			answers := tt.call(t, server.URL, "k", calls)
			if tt.bare {
				require.EqualValues(t, calls, s.orders.Load())
				return
			}
			require.EqualValues(t, 1, s.orders.Load())
			require.Equal(t, slices.Repeat([]string{"order 1"}, calls), answers)
		})
	}
}

// TestMCPRefusals reach the caller as errors of its call, and leave its session as it is.
func TestMCPRefusals(t *testing.T) {
	t.Parallel()
	for name, mode := range mcpModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s agentShop
			server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New()), s.server(t), mode))
			t.Cleanup(server.Close)
			var network cuts
			session := agent(t, server.URL+"/mcp", network.client())
			defer func() { _ = session.Close() }()
			requireCode := func(code int64, kind, says string, err error) {
				t.Helper()
				var wire *jsonrpc.Error
				require.ErrorAs(t, err, &wire)
				require.Equal(t, code, wire.Code)
				require.Contains(t, string(wire.Data), kind)
				require.Contains(t, wire.Message, says)
			}
			_, err := buy(t.Context(), session, "")
			requireCode(-32602, "key_missing", "/params/arguments/idempotency_key", err)
			_, err = buy(t.Context(), session, "k")
			require.NoError(t, err)
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "order", Arguments: order{SKU: "coffee", Key: "k"}})
			requireCode(-32000, "key_reused", "Only if this is another intention", err)
			for n := range 2 {
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search", Arguments: struct{}{}})
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint("search ", n+1), result.Content[0].(*mcp.TextContent).Text)
			}
			require.EqualValues(t, 1, s.orders.Load())
		})
	}
}

// beMCP serves until it is killed. An order is a line in a list of Redis. Over "hang", one with the key "dies"
// is not answered, and "bare" has no guard.
func beMCP(kind, url string) error {
	store, err := redisstore.Open(context.Background(), url, redisstore.WithPrefix("shop:"))
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	orders := redis.NewClient(options)
	tools := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "order"}, func(ctx context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, any, error) {
		if err := orders.RPush(ctx, "placed", o.Key).Err(); err != nil {
			return nil, nil, err
		}
		if strings.Contains(kind, "hang") && o.Key == "dies" {
			_, _ = os.Stdout.WriteString("placed\n")
			select {}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "order of " + o.Key}}}, nil, nil
	})
	opts := &mcp.StreamableHTTPOptions{Stateless: strings.Contains(kind, "stateless")}
	h := mcpRoutes(lock.New(store, patient, lock.WithLease(10*time.Second)), tools, opts)
	if strings.Contains(kind, "bare") {
		h = unguardedTools(tools, opts)
	}
	_, _ = fmt.Fprintln(os.Stdout, httptest.NewServer(h).URL)
	select {}
}

// startServer returns the address of a server in another process.
func startServer(t *testing.T, kind, url string) (addr string, placed, kill func()) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerOver+"="+kind+" "+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	return lines.Text(), func() { require.True(t, lines.Scan()) }, kill
}

// TestMCPServerIsKilled before and after its answer, and another one takes its place. Without the guard, each
// call that is repeated is another order.
func TestMCPServerIsKilled(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "waits for the lease of a killed server")
	t.Parallel()
	for kind, orders := range map[string]int{"mcp": 2, "mcp-bare": 4, "mcp-stateless": 2, "mcp-stateless-bare": 4} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			call := callBySDK
			if strings.Contains(kind, "stateless") { // the client in Python has no sessions
				call = callByPython
			}
			store := redistest.Start(t)
			url, placed, kill := startServer(t, kind+"-hang", store.URL())
			require.Equal(t, []string{"order of whole"}, call(t, url, "whole", 1))
			dies := make(chan string, 1)
			go func() { dies <- call(t, url, "dies", 1)[0] }()
			placed()
			kill()
			require.NotContains(t, <-dies, "order of")

			url, _, _ = startServer(t, kind, store.URL())
			require.Equal(t, []string{"order of whole"}, call(t, url, "whole", 1), "the answer of the killed server")
			var last string
			eventually(t, func() bool { // until its lease is over, the call is in progress
				last = call(t, url, "dies", 1)[0]
				return !strings.Contains(last, "still being processed")
			}, "the lease of the killed server")
			if strings.Contains(kind, "bare") {
				require.Equal(t, "order of dies", last)
			} else {
				require.Contains(t, last, "it is not known whether it had an effect")
			}
			require.EqualValues(t, orders, store.Do(t, "LLEN", "placed"))
		})
	}
}

// ofContracts are the guards for agents that follow a contract.
func ofContracts(locker *lock.Locker, agent keyfunc.Func) []func(http.Handler) http.Handler {
	ucp := latch.Idempotent(locker, agent, keyfunc.IdempotencyKey, latch.UCPOverMCP())
	a2a := latch.Idempotent(locker, agent, keyfunc.IdempotencyKey, latch.A2A())
	return []func(http.Handler) http.Handler{ucp, a2a}
}

// TestContractsOverTheSDK: a checkout of UCP, and the messages that A2A's option does not guard.
func TestContractsOverTheSDK(t *testing.T) {
	t.Parallel()
	for i, want := range []int64{1, 2} {
		var s agentShop
		server := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
		type checkout struct {
			Meta map[string]string `json:"meta"`
			ID   string            `json:"id"`
		}
		mcp.AddTool(server, &mcp.Tool{Name: "complete_checkout"}, func(context.Context, *mcp.CallToolRequest, checkout) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(s.orders.Add(1))}}}, nil, nil
		})
		tools := unguardedTools(server, mcpModes["events, stateless"])
		web := httptest.NewServer(ofContracts(newLocker(t, memstore.New()), keyfunc.Header("X-Agent-ID"))[i](tools))
		t.Cleanup(web.Close)
		var network cuts
		session := agent(t, web.URL, network.client())
		for range 2 {
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "complete_checkout", Arguments: checkout{Meta: map[string]string{"idempotency-key": "k"}, ID: "c"}})
			require.NoError(t, err)
		}
		require.Equal(t, want, s.orders.Load())
		require.NoError(t, session.Close())
	}
}
