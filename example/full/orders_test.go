package main_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

func queryEscape(s string) string { return url.QueryEscape(s) }

func onBothRouters(t *testing.T, test func(t *testing.T, router string)) {
	t.Helper()
	for _, router := range []string{"chi", "stdlib"} {
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			test(t, router)
		})
	}
}

func TestRefusedInput(t *testing.T) {
	t.Parallel()
	good := func(header ...string) []string { return append(header, "X-User-ID", "42") }
	user := func(id string) []string { return []string{"X-User-ID", id} }
	body := func(sku, quantity string) string { return `{"sku":` + sku + `,"quantity":` + quantity + `}` }
	tests := []struct {
		name   string
		header []string
		body   string
		want   int
	}{
		{"no user", nil, order, 400},
		{"two users", append(user("42"), user("43")...), order, 400},
		{"user of 129 bytes", user(strings.Repeat("u", 129)), order, 400},
		{"user with a colon", user("4:2"), order, 400},
		{"no body", good(), "", 400},
		{"two objects", good(), order + order, 400},
		{"unknown field", good(), `{"sku":"tea","quantity":1,"price":0}`, 400},
		{"empty sku", good(), body(`""`, "1"), 400},
		{"quantity 0", good(), body(`"tea"`, "0"), 400},
		{"quantity 1001", good(), body(`"tea"`, "1001"), 400},
		{"body of 64 KiB and a byte", good(), order + strings.Repeat(" ", 64<<10-len(order)+1), 413},
		{"X-Work over 30s", good("X-Work", "30.001s"), order, 400},
		{"X-Linger over 30s with X-Work", good("X-Linger", "29s", "X-Work", "1001ms"), order, 400},
		{"unknown X-Fail", good("X-Fail", "maybe"), order, 400},
	}
	onBothRouters(t, func(t *testing.T, router string) {
		c := startDesk(t, "-router", router, "-work", "0s")
		for _, tt := range tests {
			got := c.do("POST", "/orders", tt.body, tt.header...)
			t.Log(tt.name, got.body)
			requireProblem(t, tt.want, got)
			require.Empty(t, c.locks(), tt.name)
		}
		require.Empty(t, c.orders("42"))
		require.Contains(t, c.do("GET", "/metrics", "").body, "desk_orders_total 0\n")
	})
}

func TestCooldown(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s", "-cooldown", "1h")
	require.Equal(t, 201, c.order("42").status)
	again := c.order("42")
	requireProblem(t, http.StatusTooManyRequests, again)
	seconds := must.Get(strconv.Atoi(again.header.Get("Retry-After")))(t)
	require.InDelta(t, 3550, seconds, 50)

	requireProblem(t, http.StatusInternalServerError, c.order("43", "X-Fail", "500"))
	require.Equal(t, 201, c.order("43").status, "a failed order frees its user at once")

	locks := c.locks()
	require.Len(t, locks, 2)
	require.Equal(t, "settled", locks[0].State)
	freed := c.do("DELETE", "/locks?key="+queryEscape(locks[0].Key)+"&token="+queryEscape(locks[0].Token), "")
	require.Equal(t, http.StatusNoContent, freed.status, freed.body)
	require.Equal(t, 201, c.order("42").status, "an operator can end a cool-down")
}

// A client that goes away frees its user. TestFailuresAfterTheEffect has the other ways to fail.
func TestHang(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	leave := c.hang("c", "X-Fail", "hang")
	require.Eventually(t, func() bool { return len(c.orders("c")) == 1 }, 30*time.Second, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return len(c.locks()) == 0 }, 30*time.Second, time.Millisecond,
		"the lock of a client that has gone is freed")
	require.Equal(t, 201, c.order("c").status)
}

func TestPaymentsAreLockedByOrder(t *testing.T) {
	t.Parallel()
	onBothRouters(t, func(t *testing.T, router string) {
		c := startDesk(t, "-router", router, "-work", "3s") // longer than it takes to ask for others meanwhile
		c.storm(2, func(i int) string { return fmt.Sprint(i) }, "X-Work", "0s")
		first, second := c.orders("0")[0].ID, c.orders("1")[0].ID
		answer := c.background("POST", "/orders/"+first+"/pay", "", "Idempotency-Key", "first")
		require.Equal(t, "held", c.awaitLock("order="+first).State)
		requireProblem(t, http.StatusConflict, c.pay(first))
		spelled := func(id string) reply {
			return c.do("POST", fmt.Sprintf("/orders/%%%X%s/pay", id[0], id[1:]), "", "Idempotency-Key", "spelled")
		}
		requireProblem(t, http.StatusConflict, spelled(first))
		require.Equal(t, 200, spelled(second).status)
		got := <-answer
		require.Equal(t, 200, got.status, got.body)
	})
}

func TestFencesRefuseTheOvertaken(t *testing.T) {
	t.Parallel()
	orders, ctx := desk.NewOrders(), t.Context()
	require.NoError(t, orders.Place(ctx, "42", 7))
	require.NoError(t, orders.Place(ctx, "42", 9))
	require.ErrorIs(t, orders.Place(ctx, "42", 8), desk.ErrOvertaken)
	require.NoError(t, orders.Place(ctx, "43", 8), "fences are per user")
	placed := must.Get(orders.Count(ctx, "42"))(t)
	require.Equal(t, 2, placed)
}

func TestAllow(t *testing.T) {
	t.Parallel()
	onBothRouters(t, func(t *testing.T, router string) {
		c := startDesk(t, "-router", router)
		for path, allow := range map[string]string{
			"/orders":       "GET, HEAD, POST",
			"/orders/7/pay": "POST",
			"/locks":        "GET, HEAD, DELETE",
			"/healthz":      "GET, HEAD",
			"/console":      "GET, HEAD, POST, DELETE",
		} {
			got := c.do("PUT", path, "")
			requireProblem(t, 405, got)
			require.Equal(t, allow, got.header.Get("Allow"))
		}
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
				send := func(fail string) (reply, error) {
					return c.try("POST", "/orders", order, "X-User-ID", "42", "Idempotency-Key", "k", "X-Commit", commit, "X-Fail", fail)
				}
				got, err := send(mode)
				if mode == "500" {
					require.NoError(t, err)
					require.Equal(t, http.StatusInternalServerError, got.status)
				} else {
					require.Error(t, err, "net/http ends the connection of a handler that panics")
				}
				must.Get(send(""))(t)
				require.Len(t, c.orders("42"), orders)
			})
		}
	}
	c := startDesk(t)
	requireProblem(t, http.StatusBadRequest, c.order("42", "X-Commit", "1"))
	requireProblem(t, http.StatusBadRequest, c.order("42", "X-Commit", "yes", "Idempotency-Key", "k"))
	require.Empty(t, c.orders("42"))
}
