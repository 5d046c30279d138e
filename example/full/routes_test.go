package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRoutersAgree asks both routers the same and compares the answers.
func TestRoutersAgree(t *testing.T) {
	t.Parallel()
	onChi, onStdlib := startDesk(t, "-router", "chi"), startDesk(t, "-router", "stdlib")
	paths := []string{
		"/", "/carts", "/exports", "/orders?user=42", "/orders/", "/orders/7", "/orders/7/pay", "/orders/7/pay/", "/orders//pay", "/orders/a%2Fb/pay",
		"/orders/%37/pay", "/orders/%25/pay", "/healthz", "/readyz", "/metrics", "/locks", "/locks/", "/console", "/console/", "/try", "/try?user=42", "/assets/page.css", "/assets/page.html", "/nope", "//", "//orders", "/./orders", "/../orders", "/orders/%2E%2E/pay", "/orders/./pay", "/ORDERS",
	}
	wanted := map[string]int{
		"GET /": 200, "POST /": 405, "PUT /orders?user=42": 405, "POST /orders/": 404, "GET /orders/7": 404, "DELETE /orders/7": 405,
		"GET /orders/7/pay": 405, "POST /orders/7/pay": 400, "POST /orders/%25/pay": 400, "GET /nope": 404, "PATCH /nope": 404,
		"HEAD /orders?user=42": 200, "POST //orders": 404, "PURGE /orders?user=42": 405, "PURGE /nope": 404, "DELETE /locks": 400,
		"GET /try": 400, "POST /try": 400, "GET /try?user=42": 200, "GET /assets/page.css": 200, "GET /assets/page.html": 404,
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"} {
			request := method + " " + path
			a, b := onChi.do(method, path, ""), onStdlib.do(method, path, "")
			require.Equal(t, a.status, b.status, request)
			require.Equal(t, a.header.Values("Allow"), b.header.Values("Allow"), request)
			require.Equal(t, a.header.Values("Content-Type"), b.header.Values("Content-Type"), request)
			if path != "/metrics" && request != "GET /" { // they count, and draw a key
				require.Equal(t, a.body, b.body, request)
			}
			if want, ok := wanted[request]; ok {
				require.Equal(t, want, a.status, request)
				delete(wanted, request)
			}
			if a.status >= 400 && method != "HEAD" {
				requireProblem(t, a.status, a)
			}
			require.Equal(t, a.status == 405, a.header.Get("Allow") != "", request)
		}
	}
	require.Empty(t, wanted, "rows that no request was made for")
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
