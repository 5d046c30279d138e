package integrations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

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

var mcpModes = map[string]*mcp.StreamableHTTPOptions{
	"events":            {},
	"JSON":              {JSONResponse: true},
	"events, stateless": {Stateless: true},
}

// agentHeader names the agent, as its authentication would.
type agentHeader struct{ base http.RoundTripper }

func (a agentHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Agent-ID", "agent")
	return a.base.RoundTrip(r)
}

func agentClient() *http.Client {
	return &http.Client{Transport: agentHeader{&http.Transport{DisableKeepAlives: true}}}
}

func agent(t *testing.T, url string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	session := must.Get(mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client, DisableStandaloneSSE: true, MaxRetries: -1}, nil))(t)
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

// TestMCPCutAtEveryByte: the official SDK calls a tool over a connection that breaks off after each byte of the answer,
// and calls it again in a new session, with another id. There is one order for each key, and the agent learns of it.
func TestMCPCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for name, mode := range mcpModes {
		parallel.Run(t, name, func(t *testing.T) {
			var s agentShop
			server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New(), lock.WithWait(time.Minute)), s.server(t), mode))
			t.Cleanup(server.Close)
			proxy, client := cutproxy.Start(t, server.URL), agentClient()
			lost, whole := 0, false
			for cut := 0; !whole; cut++ {
				key := fmt.Sprint("key-of-the-agent-", cut)
				session := agent(t, proxy.URL()+"/mcp", client)
				proxy.Cut(cutproxy.Response, cut)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				text, err := buy(ctx, session, key)
				whole = proxy.Waiting() // there was no more to cut off
				if err != nil {
					lost++
					next := agent(t, proxy.URL()+"/mcp", client)
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
		parallel.Run(t, name, func(t *testing.T) {
			ordered, closed := make(chan struct{}), make(chan struct{})
			s := agentShop{ordering: func(context.Context) {
				close(ordered)
				<-closed
			}}
			server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New(), lock.WithWait(time.Minute)), s.server(t), mode))
			t.Cleanup(server.Close)
			client := agentClient()
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

// mcpCaller calls the tool n times at once with one key, and returns the text of each answer or error.
type mcpCaller func(t *testing.T, url, key string, n int) []string

// callBySDK has a session for each five calls, so that some calls share their id, and others do not.
func callBySDK(t *testing.T, url, key string, n int) []string {
	t.Helper()
	answers, client := make([]string, n), agentClient()
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
		parallel.Run(t, name, func(t *testing.T) {
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
		parallel.Run(t, name, func(t *testing.T) {
			var s agentShop
			server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New()), s.server(t), mode))
			t.Cleanup(server.Close)
			session := agent(t, server.URL+"/mcp", agentClient())
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
			must.Get(buy(t.Context(), session, "k"))(t)
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "order", Arguments: order{SKU: "coffee", Key: "k"}})
			requireCode(-32000, "key_reused", "Only if this is another intention", err)
			for n := range 2 {
				result := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search", Arguments: struct{}{}}))(t)
				require.Equal(t, fmt.Sprint("search ", n+1), result.Content[0].(*mcp.TextContent).Text)
			}
			require.EqualValues(t, 1, s.orders.Load())
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
		session := agent(t, web.URL, agentClient())
		for range 2 {
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "complete_checkout", Arguments: checkout{Meta: map[string]string{"idempotency-key": "k"}, ID: "c"}})
			require.NoError(t, err)
		}
		require.Equal(t, want, s.orders.Load())
		require.NoError(t, session.Close())
	}
}

// TestMCPCancelledCall: an agent gives up, and its SDK cancels the call, so that the context of the tool ends. A tool
// that goes on has its answer for the repeat. Otherwise its error is the answer, though no agent has read it.
func TestMCPCancelledCall(t *testing.T) {
	t.Parallel()
	for name, mode := range mcpModes {
		if mode.Stateless {
			continue // the server does not know whose call it is
		}
		for answer, goesOn := range map[string]bool{"order 1": true, "context canceled": false} {
			parallel.Run(t, name+"/"+answer, func(t *testing.T) {
				ordered := make(chan struct{})
				shop := mcp.NewServer(&mcp.Implementation{Name: "shop"}, nil)
				mcp.AddTool(shop, &mcp.Tool{Name: "order"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ order) (*mcp.CallToolResult, any, error) {
					close(ordered)
					<-ctx.Done()
					if goesOn {
						ctx = context.WithoutCancel(ctx)
					}
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "order 1"}}}, nil, ctx.Err()
				})
				server := httptest.NewServer(mcpRoutes(newLocker(t, memstore.New(), lock.WithWait(time.Minute)), shop, mode))
				t.Cleanup(server.Close)
				session := agent(t, server.URL+"/mcp", agentClient())
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-ordered
					cancel()
				}()
				_, err := buy(ctx, session, "k")
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, answer, must.Get(buy(t.Context(), session, "k"))(t))
				require.NoError(t, session.Close())
			})
		}
	}
}
