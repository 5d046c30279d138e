package main_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"memory": {}, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-lease", "6s", "-budget", "3s")...)
			require.Equal(t, "[]\n", c.do("GET", "/locks", "").body)
			lost := c.background("POST", "/orders", order, "X-User-ID", "4|2", "X-Work", "30s")
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
	require.Eventually(t, func() bool { return c.order("42").status == 201 }, 20*time.Second, 10*time.Millisecond)

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

// inBackground submits an order of user 42, and returns when it is being
// worked on.
func (c *client) inBackground(header ...string) <-chan reply {
	c.t.Helper()
	before := c.acquired()
	answer := c.background(http.MethodPost, "/orders", order, append(header, "X-User-ID", "42")...)
	// The store has the lock before the desk knows that it does, and a desk that is
	// shut down in between refuses the order.
	require.Eventually(c.t, func() bool { return c.acquired() > before }, 30*time.Second, time.Millisecond)
	return answer
}

func (c *client) acquired() int {
	c.t.Helper()
	_, found, _ := strings.Cut(c.do("GET", "/metrics", "").body, "\nlock_acquisitions_total{outcome=\"acquired\",policy=\"user\"} ")
	count, _, _ := strings.Cut(found, "\n")
	n := must.Get(strconv.Atoi(cmp.Or(count, "0")))(c.t)
	return n
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, args := range map[string][]string{"memory": {}, "redis": patiently(server.URL())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-router", "stdlib")...)
			kept := newClient(t, c.url)
			require.Equal(t, 200, kept.do("GET", "/healthz", "").status) // its connection stays open
			answer := c.inBackground("X-Work", "5s")                     // longer than it takes to look what becomes of others
			c.signal()

			fresh := newClient(t, c.url)
			require.Eventually(t, func() bool { return fresh.do("GET", "/readyz", "").status == 503 }, 30*time.Second, time.Millisecond)
			// The desk says it is unready before its Locker refuses orders; an order between the two is placed.
			require.Eventually(t, func() bool { return fresh.order("44").status == 503 }, 30*time.Second, time.Millisecond)
			for _, late := range []*client{kept, newClient(t, c.url)} {
				got := late.order("43")
				requireProblem(t, http.StatusServiceUnavailable, got)
				require.Contains(t, got.body, "#shutting-down")
				require.Equal(t, "1", got.header.Get("Retry-After"))
			}
			require.Equal(t, 200, fresh.do("GET", "/healthz", "").status)
			require.Empty(t, fresh.orders("43"))

			got := <-answer
			require.Equal(t, http.StatusCreated, got.status, got.body)
			require.NoError(t, <-c.ended)
			_, err := newClient(t, c.url).try("GET", "/healthz", "")
			require.Error(t, err)
		})
	}
	t.Cleanup(func() {
		require.Empty(t, server.Keys(t), "nothing is left in the store")
	})
}

// TestShutdownEndsHungOrders: an order that does not end in time has its context
// cancelled, and its lock is released.
func TestShutdownEndsHungOrders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := startWith(t, func(ctx context.Context, stdout, stderr io.Writer) error {
		return desk.RunImpatient(ctx, patiently(server.URL(), "-addr", "127.0.0.1:0"), time.Minute, 300*time.Millisecond, stdout, stderr)
	})
	answer := c.inBackground("X-Work", "0s", "X-Fail", "hang")
	c.signal()
	requireProblem(t, http.StatusServiceUnavailable, <-answer)
	require.NoError(t, <-c.ended)
	require.Empty(t, server.Keys(t))
}

func halfRequest(t *testing.T, url, text string) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
	t.Cleanup(func() { _ = conn.Close() })
	must.Get(fmt.Fprint(conn, text))(t)
}

const halfOrder = "POST /orders HTTP/1.1\r\nHost: desk\r\nX-User-ID: 42\r\nContent-Length: 100\r\n\r\n{"

// Clients that never finish their requests do not make a shutdown a failure.
func TestShutdownWithHalfRequests(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	halfRequest(t, c.url, halfOrder)
	halfRequest(t, c.url, "POST /orders HTTP/1.1\r\nHo")
	halfRequest(t, c.url, strings.Replace(halfOrder, "Host", "Idempotency-Key: k\r\nHost", 1))
	require.Equal(t, http.StatusCreated, c.order("43").status)
	c.signal()
	require.NoError(t, <-c.ended)
}
