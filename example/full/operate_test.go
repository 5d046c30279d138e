package main_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"memory": {}, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-lease", "6s", "-budget", "3s")...)
			require.Equal(t, "[]\n", c.do("GET", "/locks", "").body)
			lost := make(chan reply, 1)
			go func() {
				got, err := c.try("POST", "/orders", order, "X-User-ID", "4|2", "X-Work", "30s")
				if err != nil {
					got.body = err.Error()
				}
				lost <- got
			}()
			held := c.awaitLock("user=4|2")
			require.Equal(t, "held", held.State)
			require.NotEmpty(t, held.Token)
			require.NotEmpty(t, held.Owner)
			require.NotNil(t, held.LeaseMS)
			require.Positive(t, *held.LeaseMS)
			require.LessOrEqual(t, *held.LeaseMS, int64(6000))

			path := "/locks?key=" + queryEscape(held.Key)
			requireProblem(t, http.StatusBadRequest, c.do("DELETE", path, ""))
			requireProblem(t, http.StatusBadRequest, c.do("DELETE", "/locks?token=x", ""))
			requireProblem(t, http.StatusNotFound, c.do("DELETE", "/locks?key=user%3D5&token=x", ""))
			requireProblem(t, http.StatusConflict, c.do("DELETE", path+"&token=x", ""))
			require.Len(t, c.locks(), 1, "nothing but the token frees it")
			freed := c.do("DELETE", path+"&token="+queryEscape(held.Token), "")
			require.Equal(t, http.StatusNoContent, freed.status)
			require.Empty(t, freed.body)
			requireProblem(t, http.StatusNotFound, c.do("DELETE", path+"&token="+queryEscape(held.Token), ""))

			requireProblem(t, http.StatusServiceUnavailable, <-lost)
			require.Empty(t, c.orders("4|2"), "work whose lock is lost does nothing")
			require.Equal(t, 201, c.order("4|2").status)
		})
	}
}

// There is one page for people, whichever of the two they open, and lists for scripts.
func TestLocksSendPeopleToTheConsole(t *testing.T) {
	t.Parallel()
	onBothRouters(t, func(t *testing.T, router string) {
		c := startDesk(t, "-router", router, "-work", "0s", "-cooldown", "1h")
		require.Equal(t, 201, c.order("a&amp=b").status)
		for accept, html := range map[string]bool{
			"text/html,application/xhtml+xml": true, "application/json": false, "*/*": false, "": false,
		} {
			got := c.do("GET", "/locks", "", "Accept", accept) // and where it leads
			require.Equal(t, 200, got.status)
			require.Equal(t, html, strings.Contains(got.header.Get("Content-Type"), "text/html"), accept)
			require.Equal(t, html, strings.Contains(got.body, "In a cool-down for another"), accept)
			require.Contains(t, got.body, "user=a~26amp~3Db")
			require.Equal(t, "no-store", got.header.Get("Cache-Control"))
			require.Contains(t, got.header.Values("Vary"), "Accept")
		}
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := startDesk(t, "-redis", server.URL())
	require.Equal(t, 200, c.do("GET", "/healthz", "").status)
	ready := func() bool { return c.do("GET", "/readyz", "").status == 200 }
	require.Eventually(t, ready, 30*time.Second, 10*time.Millisecond)

	server.Stop()
	began := time.Now()
	got := c.do("GET", "/readyz", "")
	requireProblem(t, http.StatusServiceUnavailable, got)
	require.Contains(t, got.body, "The store takes no locks: silent.")
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.Less(t, time.Since(began), 10*time.Second)
	require.Equal(t, 200, c.do("GET", "/healthz", "").status)
	got = c.order("42")
	requireProblem(t, http.StatusServiceUnavailable, got)
	require.Contains(t, got.body, "#unavailable")
	requireProblem(t, http.StatusServiceUnavailable, c.do("GET", "/locks", ""))

	server.Cont()
	require.Eventually(t, ready, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, 201, c.served("42").status)

	server.Kill()
	require.Eventually(t, func() bool {
		return strings.Contains(c.do("GET", "/readyz", "").body, "The store takes no locks: dial.")
	}, 30*time.Second, 100*time.Millisecond)
	server.Restart(t)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	for range 3 {
		require.Equal(t, 201, c.order("42").status)
	}
	require.Equal(t, 200, c.pay(c.orders("42")[0].ID).status)
	got := c.do("GET", "/metrics", "")
	require.Equal(t, 200, got.status)
	require.Contains(t, got.header.Get("Content-Type"), "text/plain; version=0.0.4")
	for _, line := range []string{
		`lock_acquisitions_total{outcome="acquired",policy="user"} 3`,
		`lock_hold_duration_seconds_count{end="released",policy="user"} 3`,
		`lock_acquisitions_total{outcome="acquired",policy="order"} 1`,
		`lock_losses_total{policy="user",reason="taken"} 0`,
		`idempotency_requests_total{outcome="skipped",policy="order-once"} 3`,
		`idempotency_requests_total{outcome="executed",policy="pay-once"} 1`,
		`idempotency_store_entries 1`,
		`http_server_request_duration_seconds_count{http_request_method="POST",http_response_status_code="201",` +
			`http_route="/orders",idempotency_outcome="skipped",lock_outcome="acquired"} 3`,
		`http_server_request_duration_seconds_count{http_request_method="POST",http_response_status_code="200",` +
			`http_route="/orders/{id}/pay",idempotency_outcome="executed",lock_outcome="acquired"} 1`,
		"desk_orders_total 3",
		"desk_payments_total 1",
	} {
		require.Contains(t, got.body, line+"\n")
	}
	require.NotContains(t, got.body, "42\"", "a user is no label")
	require.NotContains(t, got.body, "127.0.0.1", "nor is what a client says in its Host")
	problems, err := promlint.New(strings.NewReader(got.body)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
