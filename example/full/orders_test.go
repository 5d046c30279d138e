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

func TestOrder(t *testing.T) {
	t.Parallel()
	onBothRouters(t, func(t *testing.T, router string) {
		c := startDesk(t, "-router", router, "-work", "0s")
		require.Equal(t, "[]\n", c.do("GET", "/orders?user=42", "").body)

		got := c.order("42")
		require.Equal(t, http.StatusCreated, got.status, got.body)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		exists := c.orders("42")
		require.Len(t, exists, 1)
		id := exists[0].ID
		require.JSONEq(t, `{"id":"`+id+`","user":"42","sku":"tea","quantity":1}`, got.body)
		require.Equal(t, "/orders/"+id, got.header.Get("Location"))
		require.JSONEq(t, `{"id":"`+id+`","user":"42","sku":"tea","quantity":1,"status":"placed"}`, c.do("GET", "/orders/"+id, "").body)

		got = c.pay(id)
		require.Equal(t, http.StatusOK, got.status, got.body)
		require.JSONEq(t, `{"id":"`+id+`","status":"paid"}`, got.body)
		require.Equal(t, "paid", c.orders("42")[0].Status)

		requireProblem(t, http.StatusNotFound, c.pay("nope"))
		requireProblem(t, http.StatusNotFound, c.do("GET", "/orders/nope", ""))
		require.Empty(t, c.locks())
	})
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
	seconds, err := strconv.Atoi(again.header.Get("Retry-After"))
	require.NoError(t, err)
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

func TestFailures(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	got := c.order("a", "X-Fail", "500")
	requireProblem(t, http.StatusInternalServerError, got)
	require.Len(t, c.orders("a"), 1, "the order exists before the failure")
	require.Equal(t, 201, c.order("a").status)

	_, err := c.try("POST", "/orders", order, "X-User-ID", "b", "X-Fail", "panic")
	require.Error(t, err, "the connection ends without an answer")
	require.Len(t, c.orders("b"), 1)
	require.Equal(t, 201, c.order("b").status)

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
		answers := make(chan reply, 1)
		go func() {
			got, err := c.try("POST", "/orders/"+first+"/pay", "", "Idempotency-Key", "first")
			if err != nil {
				got.body = err.Error()
			}
			answers <- got
		}()
		require.Equal(t, "held", c.awaitLock("order="+first).State)
		requireProblem(t, http.StatusConflict, c.pay(first))
		spelled := func(id string) reply {
			return c.do("POST", fmt.Sprintf("/orders/%%%X%s/pay", id[0], id[1:]), "", "Idempotency-Key", "spelled")
		}
		requireProblem(t, http.StatusConflict, spelled(first))
		require.Equal(t, 200, spelled(second).status)
		got := <-answers
		require.Equal(t, 200, got.status, got.body)
	})
}

func TestFencesRefuseTheOvertaken(t *testing.T) {
	t.Parallel()
	requireFences(t, desk.NewOrders())
}

func requireFences(t *testing.T, orders desk.Orders) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, orders.Place(ctx, "42", 7))
	require.NoError(t, orders.Place(ctx, "42", 9))
	require.ErrorIs(t, orders.Place(ctx, "42", 8), desk.ErrOvertaken)
	require.NoError(t, orders.Place(ctx, "43", 8), "fences are per user")
	placed, err := orders.Count(ctx, "42")
	require.NoError(t, err)
	require.Equal(t, 2, placed)
}
