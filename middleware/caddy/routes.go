package latchcaddy

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/intercept"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/httplatch/httplatch/internal/httpmethod"
)

// useRoutes calls use with each guard in the routes of app, and gives each reverse_proxy behind one a
// transport that notices lost answers. Its error names each reverse_proxy that would lose them.
func useRoutes(app *caddyhttp.App, use func(*Handler) error) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		server := app.Servers[name]
		w := walk{named: server.NamedRoutes, use: use, later: make(map[*caddyhttp.Route]spot)}
		w.list(server.Routes, spot{})
		if server.Errors != nil {
			w.after(server.Errors.Routes, spot{})
		}
		for len(w.lists) > 0 {
			routes := w.lists[0]
			w.lists = w.lists[1:]
			at := w.later[&routes[0]]
			at.afterGuard = w.met
			w.list(routes, at)
		}
		errs = append(errs, w.errs...)
	}
	return errors.Join(errs...)
}

// walk goes through the routes of a server in the order of its requests.
type walk struct {
	named map[string]*caddyhttp.Route
	use   func(*Handler) error
	depth int  // of invoked routes, which may invoke themselves
	met   bool // there was a guard
	errs  []error

	// Routes of errors and of intercepted answers run when the guards behind their place are over.
	lists []caddyhttp.RouteList
	later map[*caddyhttp.Route]spot // by their first route
}

// after remembers routes that run later, once.
func (w *walk) after(routes caddyhttp.RouteList, at spot) {
	if len(routes) == 0 {
		return
	}
	if _, met := w.later[&routes[0]]; !met {
		w.lists, w.later[&routes[0]] = append(w.lists, routes), at
	}
}

// spot is a place in the routes.
type spot struct {
	guarded    bool               // by a guard before it
	afterGuard bool               // a guard may be over, and its key free
	strips     []*rewrite.Rewrite // of handle_path and uri strip_prefix
}

// list goes through routes in order, and returns the place behind them.
func (w *walk) list(routes caddyhttp.RouteList, at spot) spot {
	before := make(map[string]spot) // groups: only one of their routes gets the request
	for i := range routes {
		route, begin := &routes[i], at
		if g, met := before[route.Group]; route.Group != "" && met {
			begin = g
		}
		before[route.Group] = begin
		end := w.route(route, begin)
		if !route.Terminal {
			end.guarded = at.guarded || end.guarded
			at = end
		}
	}
	return at
}

func (w *walk) route(route *caddyhttp.Route, at spot) spot {
	for _, handler := range route.Handlers {
		switch h := handler.(type) {
		case *Handler:
			h.strips = append(h.strips, at.strips)
			w.errs = append(w.errs, w.use(h))
			at.guarded = at.guarded || h.guards()
			w.met = w.met || h.guards()
		case *rewrite.Rewrite:
			if h.StripPathPrefix != "" {
				at.strips = append(slices.Clip(at.strips), h)
			}
		case *caddyhttp.Invoke:
			if named := w.named[h.Name]; named != nil && w.depth < len(w.named) {
				w.depth++
				at.guarded = w.route(named, at).guarded
				w.depth--
			}
		case *reverseproxy.Handler:
			w.errs = append(w.errs, guardProxy(h, at))
		}
		inside, later := routesOf(handler)
		for _, routes := range later {
			w.after(routes, at)
		}
		for _, routes := range inside {
			at.guarded = w.list(routes, at).guarded || at.guarded
		}
	}
	return at
}

// routesOf returns the routes in a handler of any module: in a Subroute, for example, and in the
// handle_response of a reverse_proxy. The request goes through later when the handlers behind
// this one have returned.
func routesOf(handler caddyhttp.MiddlewareHandler) (inside, later []caddyhttp.RouteList) {
	fields := reflect.Indirect(reflect.ValueOf(handler))
	if fields.Kind() != reflect.Struct {
		return nil, nil
	}
	for i := range fields.NumField() {
		if !fields.Type().Field(i).IsExported() {
			continue
		}
		switch field := fields.Field(i).Interface().(type) {
		case caddyhttp.RouteList:
			inside = append(inside, field)
		case *caddyhttp.HTTPErrorConfig:
			if field != nil {
				later = append(later, field.Routes)
			}
		case []caddyhttp.ResponseHandler:
			for _, answer := range field {
				inside = append(inside, answer.Routes)
			}
		}
	}
	if _, ok := handler.(*intercept.Intercept); ok {
		return nil, inside
	}
	return inside, later
}

// unguarded is a matcher of lb_retry_match. The transport would refuse a retry of a guarded request, and
// reverse_proxy would count the refusal as a failure of an upstream that was not asked.
type unguarded struct{}

// MatchWithError is part of [caddyhttp.RequestMatcherWithError].
func (unguarded) MatchWithError(r *http.Request) (bool, error) {
	return exchangeOf(r.Context()) == nil || httpmethod.Safe(r.Method), nil
}

// guardProxy gives h the transport that a guard needs. It returns an error if it cannot, and if h would
// send a request again for each of its repeats.
func guardProxy(h *reverseproxy.Handler, at spot) error {
	if h.Rewrite != nil && httpmethod.Safe(strings.ToUpper(h.Rewrite.Method)) {
		return nil // as of forward_auth
	}
	to := "its upstream"
	if len(h.Upstreams) > 0 {
		to = h.Upstreams[0].Dial
	}
	if at.afterGuard && !at.guarded {
		return fmt.Errorf("latch: the reverse_proxy to %s is in handle_errors or intercept, which run after the guards of this server: each "+
			"repeat of a request would reach it. Add \"method GET\" to it if it only fetches a page, or name its upstream in the reverse_proxy "+
			"behind the guard, too", to)
	}
	if !at.guarded {
		return nil
	}
	for i, set := range h.LoadBalancing.RetryMatch {
		h.LoadBalancing.RetryMatch[i] = append(caddyhttp.MatcherSet{unguarded{}}, set...)
	}
	if _, has := h.Transport.(*Transport); has {
		return nil
	}
	if h.HealthChecks != nil && h.HealthChecks.Active != nil && h.HealthChecks.Active.IsEnabled() {
		return fmt.Errorf("latch: the reverse_proxy to %s is behind a guard and has active health checks, which already use its transport: "+
			"add \"transport latch\" to it, or remove the health checks of a php_fastcgi", to)
	}
	t, err := around(h.Transport)
	if err == nil {
		h.Transport = t
	}
	return err
}
