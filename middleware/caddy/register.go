package latchcaddy

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

//nolint:gochecknoinits // a module of Caddy is there because its package is
func init() {
	caddy.RegisterModule(App{})
	caddy.RegisterModule(Handler{})
	caddy.RegisterModule(Transport{})
	httpcaddyfile.RegisterGlobalOption("latch", parseApp)
	httpcaddyfile.RegisterDirective("latch", parseHandler)
	httpcaddyfile.RegisterDirectiveOrder("latch", httpcaddyfile.Before, "invoke")
}

// parseHandler reads the directive. The Handler has its matcher, because a rewrite comes before it.
func parseHandler(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	if h.Option("latch") == nil {
		return nil, h.Err("latch: there is no store: add { latch { store redis://localhost:6379 } } to the global options")
	}
	matchers, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler := new(Handler)
	if matchers != nil {
		handler.MatcherSetsRaw = caddyhttp.RawMatcherSets{matchers}
	}
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return h.NewRoute(nil, handler), nil
}
