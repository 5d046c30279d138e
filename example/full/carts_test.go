package main_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func cart(coupon string, items ...string) string {
	list := ""
	for i, sku := range items {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"sku":%q,"quantity":1}`, sku)
	}
	return fmt.Sprintf(`{"items":[%s],"coupon":%q}`, list, coupon)
}

// sharedStores are the arguments of desks that share a store, by its kind. In memory there is nothing to share.
var sharedStores = map[string]func(t *testing.T) []string{
	"memory":     func(*testing.T) []string { return nil },
	"Redis":      func(t *testing.T) []string { t.Helper(); return patiently(redistest.Start(t).URL()) },
	"PostgreSQL": func(t *testing.T) []string { t.Helper(); return newDatabase(t).patiently() },
}

// overEachStore runs test against two desks that share a store, of both routers. In memory they
// are the same desk.
func overEachStore(t *testing.T, test func(t *testing.T, first, second *running)) {
	t.Helper()
	for store, args := range sharedStores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			if store == "memory" {
				onBothRouters(t, func(t *testing.T, router string) {
					d := startDesk(t, "-router", router)
					test(t, d, d)
				})
				return
			}
			shared := args(t)
			test(t, startDesk(t, append(shared, "-router", "chi")...), startDesk(t, append(shared, "-router", "stdlib")...))
		})
	}
}

// Two carts that share a key: the second is refused by its name, and keeps none of its other keys.
func TestCartsThatShareAKey(t *testing.T) {
	t.Parallel()
	overEachStore(t, func(t *testing.T, first, second *running) {
		t.Helper()
		slow := first.background(http.MethodPost, "/carts", cart("WELCOME", "tea", "cup", "tea"), "X-User-ID", "42", "X-Work", "3s")
		for _, key := range []string{"user=42", "coupon=WELCOME", "item=tea", "item=cup"} {
			first.awaitLock(key)
		}
		for key, other := range map[string][]string{
			"user=42":        {"42", cart("", "pot")},
			"coupon=WELCOME": {"43", cart("WELCOME", "pot")},
			"item=cup":       {"43", cart("", "pot", "cup")},
		} {
			got := second.do(http.MethodPost, "/carts", other[1], "X-User-ID", other[0])
			requireProblem(t, http.StatusConflict, got)
			require.Contains(t, got.body, "The cart needs "+key+", which is taken.")
			require.Equal(t, "1", got.header.Get("Retry-After"))
		}
		requireProblem(t, http.StatusConflict, second.order("42", "X-Work", "0s"))
		free := second.do(http.MethodPost, "/carts", cart("", "pot"), "X-User-ID", "43", "X-Work", "0s")
		require.Equal(t, http.StatusCreated, free.status, "a refused cart keeps the pot: %s", free.body)
		require.Equal(t, http.StatusCreated, (<-slow).status)
		require.Len(t, first.orders("42"), 3)
		require.Empty(t, first.locks())
		require.Equal(t, http.StatusCreated, second.do(http.MethodPost, "/carts", cart("", "cup", "tea"), "X-User-ID", "43", "X-Work", "0s").status)
	})
}

func TestRefusedCarts(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s")
	for body, says := range map[string]string{
		`{"items":[]}`:                  "1 to 16",
		`{"sku":"tea"}`:                 "a list of objects",
		cart("", "tea", ""):             "1 to 64 characters",
		cart("", make([]string, 17)...): "1 to 16",
	} {
		got := c.do(http.MethodPost, "/carts", body, "X-User-ID", "42")
		requireProblem(t, http.StatusBadRequest, got)
		require.Contains(t, got.body, says)
	}
	requireProblem(t, http.StatusBadRequest, c.do(http.MethodPost, "/carts", cart("", "tea")))
	require.Empty(t, c.orders("42"))
}

// Three exports of a user run at once, in two desks together. The fourth is refused, and one of
// another user is not.
func TestThreeExports(t *testing.T) {
	t.Parallel()
	overEachStore(t, func(t *testing.T, first, second *running) {
		t.Helper()
		require.Equal(t, http.StatusCreated, first.order("42").status)
		var exports []<-chan reply
		for i := range 3 {
			desk := []*running{first, second}[i%2]
			exports = append(exports, desk.background(http.MethodPost, "/exports", "", "X-User-ID", "42", "X-Work", "3s"))
		}
		for i := range 3 {
			first.awaitLock(fmt.Sprintf("export=42#%d", i+1))
		}
		for _, d := range []*running{first, second} {
			requireProblem(t, http.StatusTooManyRequests, d.do(http.MethodPost, "/exports", "", "X-User-ID", "42"))
		}
		require.Equal(t, http.StatusOK, second.do(http.MethodPost, "/exports", "", "X-User-ID", "43", "X-Work", "0s").status)
		for _, export := range exports {
			require.Equal(t, http.StatusOK, (<-export).status)
		}
		require.Equal(t, http.StatusOK, second.do(http.MethodPost, "/exports", "", "X-User-ID", "42", "X-Work", "0s").status)
	})
}
