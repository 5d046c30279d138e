package latchcaddy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
)

// Guards of the routes that tests load.
const (
	guardLines = "latch {\nidempotent {\nscope global\nkey idempotency-key\n}\n}\n"
	guardJSON  = `{"handler": "latch", "guards": [{"kind": "idempotent", "scope": "global", "key": "idempotency-key"}]}`
	failsJSON  = `{"handler": "error", "status_code": 503}`
)

// site returns a Caddyfile with these directives. %SHOP stands for the address of the shop.
func site(s *shop, directives string) string {
	return strings.ReplaceAll("{\nlatch {\nstore memory\n}\n}\n&(shared) {\nreverse_proxy %SHOP\n}\nhttp://127.0.0.1:%PORT, http://localhost:%PORT {\n"+directives+"\n}",
		"%SHOP", s.Listener.Addr().String())
}

// siteJSON is site for routes in JSON.
func (g *gateway) siteJSON(s *shop, routes string) []byte {
	replacer := strings.NewReplacer("%GUARD", guardJSON, "%FAILS", failsJSON,
		"%PROXY", fmt.Sprintf(`{"handler": "reverse_proxy", "upstreams": [{"dial": %q}]}`, s.Listener.Addr()))
	return fmt.Appendf(nil, `{"admin": {"disabled": true, "config": {"persist": false}}, "storage": {"module": "file_system", "root": %q},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {"latch": {"store": "memory"}, "tls": {"disable_storage_check": true, "disable_storage_clean": true}, "http": {"grace_period": 20000000000,
		"servers": {"s": {"automatic_https": {"disable": true}, "listen": ["127.0.0.1:%d"], "routes": %s}}}}}`,
		g.t.TempDir(), g.port, replacer.Replace(routes))
}

// TestEachProxyBehindAGuardIsGuarded loses the answer to an order, wherever the reverse_proxy is, and
// sends the order twice more. Without a guard there are three orders.
func TestEachProxyBehindAGuardIsGuarded(t *testing.T) {
	caddy.RegisterModule(box{})
	const proxy = "reverse_proxy %SHOP\n"
	for directives, orders := range map[string]int{
		guardLines + proxy: 1,
		proxy:              3,
		guardLines + "reverse_proxy %SHOP {\ntransport latch\n}":                                                         1,
		guardLines + "handle /orders {\n" + proxy + "}":                                                                  1,
		"handle /orders {\n" + guardLines + proxy + "}\nhandle {\nrespond ok\n}":                                         1,
		"handle /a {\n" + guardLines + "respond ok\n}\nhandle {\n" + proxy + "}":                                         3,
		"route {\nreverse_proxy /orders %SHOP\n" + guardLines + "respond ok\n}":                                          3,
		"latch {\nrefuse\n}\n@keyless {\nnot header Idempotency-Key *\n}\nrespond @keyless ok\n" + proxy:                 0,
		guardLines + "invoke shared":                                                                                     1,
		"invoke shared":                                                                                                  3,
		guardLines + "forward_auth %SHOP {\nuri /auth\n}\n" + proxy:                                                      1,
		guardLines + "reverse_proxy %SHOP {\nmethod GET\nhandle_response {\n" + proxy + "}\n}":                           1,
		"reverse_proxy %SHOP {\nmethod GET\nhandle_response {\n" + proxy + "}\n}":                                        3,
		"reverse_proxy %SHOP {\nmethod GET\nhandle_response {\n" + guardLines + proxy + "}\n}":                           1,
		guardLines + "error 503\nhandle_errors {\n" + guardLines + proxy + "}":                                           0, // the first guard has read the body
		guardLines + "error 503\nhandle_errors {\nreverse_proxy %SHOP {\nmethod GET\n}\n}":                               0,
		"error 503\nhandle_errors {\n" + guardLines + proxy + "}":                                                        1,
		"error 503\nhandle_errors {\n" + proxy + "}":                                                                     3,
		guardLines + "respond 503\nintercept {\n@bad status 503\nhandle_response @bad {\n" + guardLines + proxy + "}\n}": 0, // the first guard has read the body

		// Routes that a Caddyfile cannot have.
		`[{"handle": [%GUARD, {"handler": "subroute", "routes": [{"handle": [%FAILS]}], "errors": {"routes": [{"handle": [%PROXY]}]}}]}]`:         1,
		`[{"handle": [{"handler": "subroute", "routes": [{"handle": [%FAILS]}], "errors": {"routes": [{"handle": [%PROXY]}]}}]}]`:                 3,
		`[{"handle": [{"handler": "subroute", "routes": [{"handle": [%FAILS]}], "errors": {"routes": [{"handle": [%GUARD, %PROXY]}]}}]}]`:         1,
		`[{"handle": [{"handler": "subroute", "routes": [{"handle": [%GUARD, %FAILS]}], "errors": {"routes": [{"handle": [%GUARD, %PROXY]}]}}]}]`: 0, // the first guard has read the body
		`[{"handle": [%GUARD, {"handler": "test_box", "routes": [{"handle": [%PROXY]}]}]}]`:                                                       1,
		`[{"handle": [{"handler": "test_box", "routes": [{"handle": [%GUARD]}]}, %PROXY]}]`:                                                       1,
		`[{"handle": [{"handler": "test_box", "routes": [{"handle": [%PROXY]}]}]}]`:                                                               3,
	} {
		t.Run(directives, func(t *testing.T) {
			s := newShop(t)
			var g *gateway
			if strings.HasPrefix(directives, "[") {
				g = start(t, plain(s))
				require.NoError(t, caddy.Load(g.siteJSON(s, directives), true))
			} else {
				g = start(t, site(s, directives))
			}
			for _, do := range []string{"lose the reply", "", ""} {
				g.order("k", do)
			}
			require.Equal(t, orders, s.placed())
		})
	}
}

// TestRewrittenURLs: two shops with one key behind handle_path are two orders, and matchers see a path without the prefix that
// their handle_path has stripped; also in a named route, which sees it without the prefix of the handle_path that has invoked it.
func TestRewrittenURLs(t *testing.T) {
	twice := func(directives string) string {
		one := "handle_path /p1/* {\n" + directives + "\n}\n"
		return one + strings.NewReplacer("/p1", "/p2", "%SHOP", "%OTHER").Replace(one)
	}
	guard := func(matched string) string { return strings.Replace(guardLines, "latch", matched, 1) }
	invoked := func(matched string) string { // the end of the site is the end of the route
		return twice("invoke named") + "}\n&(named) {\nroute {\n" + guard(matched) + "reverse_proxy %SHOP\n}"
	}
	for directives, want := range map[string][]int{
		twice(guardLines + "reverse_proxy %SHOP"):                                                   {1, 1},
		twice("reverse_proxy %SHOP"):                                                                {2, 2},
		twice(guard("latch /orders*") + "reverse_proxy %SHOP"):                                      {1, 1},
		twice(guard("latch /orders*") + "rewrite * /front\nreverse_proxy %SHOP"):                    {1, 1},
		twice(guard("latch /p1/orders*") + "reverse_proxy %SHOP"):                                   {2, 2},
		guard("latch /p1/orders*") + twice("reverse_proxy %SHOP"):                                   {1, 2},
		guard("latch /orders*") + "uri strip_prefix /p1\nuri strip_prefix /p2\nreverse_proxy %SHOP": {2, 0},
		guardLines + "rewrite * /front?path={path}\nreverse_proxy %SHOP":                            {2, 0},
		guard("@not not path /p2*\nlatch @not") + "rewrite * /front\nreverse_proxy %SHOP":           {3, 0},
		invoked("latch /orders*"):                                                                   {2, 0},
		invoked("@not not path /orders*\nlatch @not"):                                               {4, 0},
	} {
		t.Run(directives, func(t *testing.T) {
			shop, other := newShop(t), newShop(t)
			g := start(t, strings.ReplaceAll(site(shop, directives), "%OTHER", other.Listener.Addr().String()))
			for _, path := range slices.Repeat([]string{"/p1/orders", "/p2/orders"}, 2) {
				require.Equal(t, http.StatusCreated, g.post(path, "").status)
			}
			require.Equal(t, want, []int{shop.placed(), other.placed()})
		})
	}
}

// box is a handler with routes of its own, like a plugin's.
type box struct {
	Routes caddyhttp.RouteList `json:"routes"`
}

func (box) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_box", New: func() caddy.Module { return new(box) }}
}

func (b *box) Provision(ctx caddy.Context) error { return b.Routes.Provision(ctx) }

func (b *box) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return b.Routes.Compile(next).ServeHTTP(w, r)
}

// TestProxiesThatNoGuardCanProtect are errors of the configuration, which validate reports.
func TestProxiesThatNoGuardCanProtect(t *testing.T) {
	const proxy = "reverse_proxy %SHOP\n"
	const outside = "is in handle_errors or intercept, which run after the guards of this server"
	refused := func(t *testing.T, g *gateway, config []byte, want string) {
		t.Helper()
		require.ErrorContains(t, validate(t, config), want)
		require.ErrorContains(t, caddy.Load(config, true), want)
		require.Equal(t, 201, g.order("k", "").status, "the configuration before it stays")
	}
	for directives, want := range map[string]string{
		guardLines + "error 503\nhandle_errors {\n" + proxy + "}":                                           outside,
		guardLines + "error 503\nhandle_errors {\nreverse_proxy %SHOP {\ntransport latch\n}\n}":             outside,
		guardLines + "respond 503\nintercept {\n@bad status 503\nhandle_response @bad {\n" + proxy + "}\n}": outside,
		"handle /orders {\n" + guardLines + "error 503\n}\nhandle_errors {\n" + proxy + "}":                 outside,
		guardLines + "reverse_proxy %SHOP {\nhealth_uri /\n}":                                               `has active health checks, which already use its transport: add "transport latch"`,
	} {
		t.Run(directives, func(t *testing.T) {
			s := newShop(t)
			g := start(t, plain(s))
			refused(t, g, must.Get(g.adapted(site(s, directives)))(t), want)
		})
	}
	for _, routes := range []string{
		`[{"handle": [{"handler": "subroute", "routes": [{"handle": [%GUARD, %FAILS]}], "errors": {"routes": [{"handle": [%PROXY]}]}}]}]`,
		`[{"handle": [{"handler": "subroute", "routes": [{"match": [{"path": ["/x"]}], "handle": [%FAILS]}], "errors": {"routes": [{"handle": [%PROXY]}]}}, %GUARD, %FAILS]}]`,
	} {
		t.Run(routes, func(t *testing.T) {
			s := newShop(t)
			g := start(t, plain(s))
			refused(t, g, g.siteJSON(s, routes), outside)
		})
	}
	t.Run("health checks", func(t *testing.T) {
		s := newShop(t)
		g := start(t, site(s, guardLines+"reverse_proxy %SHOP {\nhealth_uri /\ntransport latch\n}"))
		for range 2 {
			require.Equal(t, `order 1 of "tea"`, g.order("k", "").body)
		}
	})
}

// TestAGuardWithoutTheApp refuses requests: JSON may have no app latch.
func TestAGuardWithoutTheApp(t *testing.T) {
	s := newShop(t)
	g := start(t, plain(s))
	config := strings.Replace(string(g.siteJSON(s, `[{"handle": [%GUARD, %PROXY]}]`)), `"latch": {"store": "memory"}, `, "", 1)
	require.NoError(t, caddy.Load([]byte(config), true))
	require.Equal(t, 503, g.order("k", "").status)
	require.Equal(t, 200, g.look("/").status)
	require.Zero(t, s.placed())
}
