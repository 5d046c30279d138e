package latchcaddy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// checkProxies returns an error if a reverse_proxy behind a guard would lose answers.
func checkProxies(app *caddyhttp.App) error {
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		server := app.Servers[name]
		w := proxyWalk{named: server.NamedRoutes}
		w.list(server.Routes, false)
		if server.Errors != nil {
			w.list(server.Errors.Routes, false)
		}
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// proxyWalk goes through the routes of a server in the order of its requests.
type proxyWalk struct {
	named map[string]*caddyhttp.Route
	depth int // of invoked routes, which may invoke themselves
	err   error
}

// list goes through routes in order, and reports whether the routes after them are guarded. guarded
// says whether the first of routes is guarded.
func (w *proxyWalk) list(routes caddyhttp.RouteList, guarded bool) bool {
	before := make(map[string]bool) // groups: only one of their routes gets the request
	for _, route := range routes {
		begin := guarded
		if g, met := before[route.Group]; route.Group != "" && met {
			begin = g
		}
		before[route.Group] = begin
		end := w.route(&route, begin)
		if !route.Terminal {
			guarded = guarded || end
		}
	}
	return guarded
}

func (w *proxyWalk) route(route *caddyhttp.Route, guarded bool) bool {
	for _, handler := range route.Handlers {
		switch h := handler.(type) {
		case *Handler:
			guarded = guarded || h.guards()
		case *caddyhttp.Subroute:
			guarded = w.list(h.Routes, guarded)
		case *caddyhttp.Invoke:
			if named := w.named[h.Name]; named != nil && w.depth < len(w.named) {
				w.depth++
				guarded = w.route(named, guarded)
				w.depth--
			}
		case *reverseproxy.Handler:
			if guarded && w.err == nil {
				w.err = checkProxy(h)
			}
		}
	}
	return guarded
}

// checkProxy returns an error if the transport of h would free the key of a request whose answer
// it loses.
func checkProxy(h *reverseproxy.Handler) error {
	if _, ok := h.Transport.(*Transport); ok {
		return nil
	}
	if h.Rewrite != nil && (h.Rewrite.Method == http.MethodGet || h.Rewrite.Method == http.MethodHead) {
		return nil // as of forward_auth
	}
	to := "its upstream"
	if len(h.Upstreams) > 0 {
		to = h.Upstreams[0].Dial
	}
	return fmt.Errorf("latch: the reverse_proxy to %s is behind a guard, and has not its transport: a lost answer would free the key, "+
		"and the repeat would be a second order. Add \"transport latch\" to it. php_fastcgi takes no transport: write a reverse_proxy with "+
		"\"transport latch fastcgi\" in place of it, as in docs/gateway.md", to)
}
