package main_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that does not know an order must not keep another from taking its
// payment.
func TestRefusalsAreNotKept(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	for range 2 {
		got := c.do("POST", "/orders/nope/pay", "", "Idempotency-Key", "k")
		requireProblem(t, http.StatusNotFound, got)
		require.Empty(t, got.header.Get("Idempotent-Replayed"))
	}
	requireProblem(t, http.StatusBadRequest, c.do("POST", "/orders", "{}", "X-User-ID", "42", "Idempotency-Key", "k"))
	require.Equal(t, http.StatusCreated, c.order("42", "Idempotency-Key", "k").status)
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
