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
	httpcaddyfile.RegisterHandlerDirective("latch", parseHandler)
	httpcaddyfile.RegisterDirectiveOrder("latch", httpcaddyfile.Before, "invoke")
}

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return handler, nil
}
