package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRoutersAgree asks both routers the same and compares the answers.
func TestRoutersAgree(t *testing.T) {
	t.Parallel()
	onChi, onStdlib := startDesk(t, "-router", "chi"), startDesk(t, "-router", "stdlib")
	paths := []string{
		"/", "/orders?user=42", "/orders/", "/orders/7", "/orders/7/pay", "/orders/7/pay/", "/orders//pay", "/orders/a%2Fb/pay",
		"/orders/%37/pay", "/orders/%25/pay", "/healthz", "/readyz", "/metrics", "/locks", "/locks/", "/console", "/console/", "/nope", "//", "//orders", "/./orders", "/../orders", "/orders/%2E%2E/pay", "/orders/./pay", "/ORDERS",
	}
	wanted := map[string]int{
		"GET /": 200, "POST /": 405, "PUT /orders?user=42": 405, "POST /orders/": 404, "GET /orders/7": 404, "DELETE /orders/7": 405,
		"GET /orders/7/pay": 405, "POST /orders/7/pay": 400, "POST /orders/%25/pay": 400, "GET /nope": 404, "PATCH /nope": 404,
		"HEAD /orders?user=42": 200, "POST //orders": 404, "PURGE /orders?user=42": 405, "PURGE /nope": 404, "DELETE /locks": 400,
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"} {
			request := method + " " + path
			a, b := onChi.do(method, path, ""), onStdlib.do(method, path, "")
			require.Equal(t, a.status, b.status, request)
			require.Equal(t, a.header.Values("Allow"), b.header.Values("Allow"), request)
			require.Equal(t, a.header.Values("Content-Type"), b.header.Values("Content-Type"), request)
			if path != "/metrics" {
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

func TestPage(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	got := c.do("GET", "/", "")
	require.Equal(t, 200, got.status)
	require.Equal(t, "text/html; charset=utf-8", got.header.Get("Content-Type"))
	require.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, got.body, "<form")
	require.False(t, strings.Contains(got.body, "http://") || strings.Contains(got.body, "https://"), "the page loads nothing from elsewhere")
}
