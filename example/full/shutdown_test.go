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

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// inBackground submits an order of user 42, and returns when it is being
// worked on.
func (c *client) inBackground(header ...string) <-chan reply {
	c.t.Helper()
	before := c.acquired()
	answer := make(chan reply, 1)
	go func() {
		got, err := c.try(http.MethodPost, "/orders", order, append(header, "X-User-ID", "42")...)
		if err != nil {
			got.body = err.Error()
		}
		answer <- got
	}()
	// The store has the lock before the desk knows that it does, and a desk that is
	// shut down in between refuses the order.
	require.Eventually(c.t, func() bool { return c.acquired() > before }, 30*time.Second, time.Millisecond)
	return answer
}

// acquired is how many locks of users the desk has got.
func (c *client) acquired() int {
	c.t.Helper()
	_, found, _ := strings.Cut(c.do("GET", "/metrics", "").body, "\nlock_acquisitions_total{outcome=\"acquired\",policy=\"user\"} ")
	count, _, _ := strings.Cut(found, "\n")
	n, err := strconv.Atoi(cmp.Or(count, "0"))
	require.NoError(c.t, err)
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
		keys, err := server.Client(t).Keys(context.Background(), "*").Result()
		require.NoError(t, err)
		require.Empty(t, keys, "nothing is left in the store")
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
	keys, err := server.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// halfRequest sends the beginning of a request and keeps the connection.
func halfRequest(t *testing.T, url, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprint(conn, text)
	require.NoError(t, err)
}

const halfOrder = "POST /orders HTTP/1.1\r\nHost: desk\r\nX-User-ID: 42\r\nContent-Length: 100\r\n\r\n{"

// A body that arrives slowly holds no lock of its user.
func TestSlowBodyHoldsNoLock(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	halfRequest(t, c.url, halfOrder)
	for deadline := time.Now().Add(200 * time.Millisecond); time.Now().Before(deadline); {
		require.Equal(t, http.StatusCreated, c.order("42").status)
	}
}

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
