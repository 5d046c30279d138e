package integrations_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// TestMCPCallInALostSession: a server that was started again does not know the sessions from before, and refuses
// their calls with 404. The agent begins a session, and the same call in it is the first that the server runs.
func TestMCPCallInALostSession(t *testing.T) {
	t.Parallel()
	for name, mode := range mcpModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s agentShop
			var running atomic.Pointer[http.Handler]
			locker := newLocker(t, memstore.New(), lock.WithWait(time.Minute))
			start := func() {
				routes := mcpRoutes(locker, s.server(t), mode)
				running.Store(&routes)
			}
			start()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*running.Load()).ServeHTTP(w, r) }))
			t.Cleanup(server.Close)
			client := new(cuts).client()
			session := agent(t, server.URL+"/mcp", client)
			start()

			text, err := buy(t.Context(), session, "k")
			_ = session.Close()
			if !mode.Stateless {
				require.Error(t, err)
				session = agent(t, server.URL+"/mcp", client)
				text, err = buy(t.Context(), session, "k")
				require.NoError(t, session.Close())
			}
			require.NoError(t, err)
			require.Equal(t, "order 1", text)
			require.EqualValues(t, 1, s.orders.Load())
		})
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
			t.Run(name+"/"+answer, func(t *testing.T) {
				t.Parallel()
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
				session := agent(t, server.URL+"/mcp", new(cuts).client())
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-ordered
					cancel()
				}()
				_, err := buy(ctx, session, "k")
				require.ErrorIs(t, err, context.Canceled)
				text, err := buy(t.Context(), session, "k")
				require.NoError(t, err)
				require.Equal(t, answer, text)
				require.NoError(t, session.Close())
			})
		}
	}
}
