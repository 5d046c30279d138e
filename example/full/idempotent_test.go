package main_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplay: the same submission under the same key places one order.
func TestReplay(t *testing.T) {
	t.Parallel()
	onBothRouters(t, func(t *testing.T, router string) {
		requireReplays(t, startDesk(t, "-router", router, "-work", "0s", "-cooldown", "1h"))
	})
}

// requireReplays is for a desk with a cool-down of an hour.
func requireReplays(t *testing.T, c *running) {
	t.Helper()
	first := c.order("42", "Idempotency-Key", "k")
	require.Equal(t, http.StatusCreated, first.status, first.body)
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	// Within the cool-down, which a replay does not meet.
	again := c.order("42", "Idempotency-Key", `"k"`)
	require.Equal(t, http.StatusCreated, again.status)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, first.body, again.body)
	require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
	require.Len(t, c.orders("42"), 1)

	other := c.do("POST", "/orders", `{"sku":"coffee","quantity":1}`, "X-User-ID", "42", "Idempotency-Key", "k")
	requireProblem(t, http.StatusUnprocessableEntity, other)
	requireProblem(t, http.StatusTooManyRequests, c.order("42", "Idempotency-Key", "another"))
	require.Equal(t, http.StatusCreated, c.order("43", "Idempotency-Key", "k").status, "keys are their user's")
	requireProblem(t, http.StatusBadRequest, c.order("44", "Idempotency-Key", "a, b"))
	requireProblem(t, http.StatusBadRequest, c.order("", "Idempotency-Key", "k"))
	require.Empty(t, c.orders("44"))

	id := c.orders("42")[0].ID
	requireProblem(t, http.StatusBadRequest, c.do("POST", "/orders/"+id+"/pay", ""))
	require.Equal(t, "placed", c.orders("42")[0].Status)
	for _, replayed := range []string{"", "true"} {
		paid := c.do("POST", "/orders/"+id+"/pay", "", "Idempotency-Key", "p")
		require.Equal(t, http.StatusOK, paid.status)
		require.Equal(t, replayed, paid.header.Get("Idempotent-Replayed"))
	}
	require.Contains(t, c.do("GET", "/metrics", "").body, "desk_payments_total 1\n")
}

// TestFailuresAfterTheEffect: what fails after the order exists runs again,
// unless it has committed.
func TestFailuresAfterTheEffect(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"500", "panic"} {
		for commit, orders := range map[string]int{"": 2, "1": 1} {
			t.Run(mode+" "+commit, func(t *testing.T) {
				t.Parallel()
				c := startDesk(t, "-work", "0s")
				send := func(header ...string) (reply, error) {
					if commit != "" {
						header = append(header, "X-Commit", commit)
					}
					return c.try("POST", "/orders", order, append(header, "X-User-ID", "42", "Idempotency-Key", "k")...)
				}
				got, err := send("X-Fail", mode)
				if mode == "500" {
					require.NoError(t, err)
					require.Equal(t, http.StatusInternalServerError, got.status)
				} else {
					require.Error(t, err, "net/http ends the connection of a handler that panics")
				}
				_, err = send()
				require.NoError(t, err)
				require.Len(t, c.orders("42"), orders)
			})
		}
	}
	c := startDesk(t)
	requireProblem(t, http.StatusBadRequest, c.order("42", "X-Commit", "1"))
	requireProblem(t, http.StatusBadRequest, c.order("42", "X-Commit", "yes", "Idempotency-Key", "k"))
	require.Empty(t, c.orders("42"))
}

// TestRunsAreListed: operators see runs in addition to locks, as long as they run.
func TestRunsAreListed(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s", "-abandoned", "rerun")
	answered := make(chan error, 1)
	go func() {
		_, err := c.try(http.MethodPost, "/orders", order, "X-User-ID", "42", "X-Work", "3s", "Idempotency-Key", "k")
		answered <- err
	}()
	c.awaitLock("user=42")
	require.Len(t, c.locks(), 2, "the run and the lock")
	require.NoError(t, <-answered)
	require.Empty(t, c.locks(), "a receipt keeps no request waiting")
}
