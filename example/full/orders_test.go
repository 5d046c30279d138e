package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
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
		{"empty user", user(""), order, 400},
		{"blank user", user("  "), order, 400},
		{"two users", append(user("42"), user("43")...), order, 400},
		{"user of 129 bytes", user(strings.Repeat("u", 129)), order, 400},
		{"user of 10 kB", user(strings.Repeat("u", 10_000)), order, 400},
		{"user with braces", user("{42}"), order, 400},
		{"user with a colon", user("4:2"), order, 400},
		{"user with a blank", user("4 2"), order, 400},
		{"user with a tab", user("4\t2"), order, 400},
		{"user with non-ASCII", user("Jörg"), order, 400},
		{"user with invalid UTF-8", user("4\xff2"), order, 400},
		{"no body", good(), "", 400},
		{"body is not JSON", good(), "sku=tea", 400},
		{"half an object", good(), `{"sku":"tea"`, 400},
		{"null", good(), "null", 400},
		{"array", good(), "[" + order + "]", 400},
		{"two objects", good(), order + order, 400},
		{"object and garbage", good(), order + "x", 400},
		{"unknown field", good(), `{"sku":"tea","quantity":1,"price":0}`, 400},
		{"no sku", good(), `{"quantity":1}`, 400},
		{"empty sku", good(), body(`""`, "1"), 400},
		{"sku of 65 characters", good(), body(`"`+strings.Repeat("ö", 65)+`"`, "1"), 400},
		{"sku is a number", good(), body("1", "1"), 400},
		{"no quantity", good(), `{"sku":"tea"}`, 400},
		{"quantity 0", good(), body(`"tea"`, "0"), 400},
		{"negative quantity", good(), body(`"tea"`, "-1"), 400},
		{"quantity 1001", good(), body(`"tea"`, "1001"), 400},
		{"half a quantity", good(), body(`"tea"`, "1.5"), 400},
		{"huge quantity", good(), body(`"tea"`, "99999999999999999999"), 400},
		{"quantity is a text", good(), body(`"tea"`, `"1"`), 400},
		{"body of 64 KiB and a byte", good(), order + strings.Repeat(" ", 64<<10-len(order)+1), 413},
		{"body of 2 MB", good(), body(`"`+strings.Repeat("x", 2_000_000)+`"`, "1"), 413},
		{"form", good("Content-Type", "application/x-www-form-urlencoded"), "sku=tea", 400},
		{"X-Work is no duration", good("X-Work", "long"), order, 400},
		{"X-Work without a unit", good("X-Work", "5"), order, 400},
		{"negative X-Work", good("X-Work", "-1ms"), order, 400},
		{"X-Work over 30s", good("X-Work", "30.001s"), order, 400},
		{"X-Linger is no duration", good("X-Linger", "long"), order, 400},
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

// TestBrokenHeaders: what cannot be a header is refused by net/http itself,
// before any handler, and reported like all else.
func TestBrokenHeaders(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	half := strings.Repeat("x", 40_000)
	for user, status := range map[string]int{
		"4\x002": 400, "4\r2": 400, "4\n2": 400, "4\x7f2": 400,
		half + "\r\nX-More: " + half: 431,
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: desk\r\nX-User-ID: %s\r\nContent-Length: %d\r\n\r\n%s", user, len(order), order)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.NoError(t, conn.Close())
		requireProblem(t, status, reply{res.StatusCode, res.Header, string(body)})
	}
	require.Contains(t, c.do("GET", "/metrics", "").body, "desk_orders_total 0\n")
	require.Empty(t, c.locks())
}

func TestAcceptedInput(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	for _, user := range []string{"a", strings.Repeat("u", 128), "abcXYZ019._-@+&=/~|"} {
		require.Equal(t, 201, c.order(user).status, user)
		require.Len(t, c.orders(user), 1)
	}
	for _, body := range []string{
		`{"sku":"` + strings.Repeat("ö", 64) + `","quantity":1000}`,
		order + strings.Repeat(" ", 64<<10-len(order)),
	} {
		got := c.do("POST", "/orders", body, "X-User-ID", "42")
		require.Equal(t, 201, got.status, got.body)
	}
	require.Equal(t, 201, c.do("POST", "/orders", order, "X-User-ID", "42", "Content-Type", "application/json; charset=utf-8").status)
}

func TestListNeedsOneUser(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	for _, query := range []string{"", "?user=", "?user=4&user=2", "?user=4%3A2", "?user=%00", "?user=" + strings.Repeat("u", 129)} {
		requireProblem(t, http.StatusBadRequest, c.do("GET", "/orders"+query, ""))
	}
}

// TestUsersAreApart: names that a careless join or escape would confuse are
// different users, and order at the same time.
func TestUsersAreApart(t *testing.T) {
	t.Parallel()
	users := []string{"a&b", "a=b", "a~b", "a~26b", "a", "b", "ab", "a/b", "a|b", "a&", "&a", "A", "user=a", "a~1F"}
	for _, args := range [][]string{{}, patiently(redistest.Start(t).URL())} {
		c := startDesk(t, args...)
		for _, got := range c.storm(len(users), func(i int) string { return users[i] }, "X-Work", "1s") {
			require.Equal(t, 201, got.status, got.body)
		}
		for _, user := range users {
			require.Len(t, c.orders(user), 1, user)
		}
	}
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
	require.Eventually(t, func() bool { return len(c.orders("c")) == 1 }, 10*time.Second, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return len(c.locks()) == 0 }, 10*time.Second, time.Millisecond,
		"the lock of a client that has gone is freed")
	require.Equal(t, 201, c.order("c").status)
}

func TestClientGoneBeforeTheOrder(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	c.hang("42", "X-Work", "30s")()
	require.Eventually(t, func() bool { return len(c.locks()) == 0 }, 10*time.Second, time.Millisecond)
	require.Empty(t, c.orders("42"))
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

func TestFencesGrow(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, patiently(redistest.Start(t).URL())} {
		c := startDesk(t, append(args, "-fencing", "-work", "0s")...)
		last := int64(0)
		for range 5 {
			require.Equal(t, 201, c.order("42").status)
		}
		for _, o := range c.orders("42") {
			require.Greater(t, o.Fence, last)
			last = o.Fence
		}
	}
}
