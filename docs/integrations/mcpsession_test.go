package integrations_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

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
