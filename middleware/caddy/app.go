package latchcaddy

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// App has the store of all guards of a configuration. All fields may have placeholders such as
// {env.REDIS_URL}.
type App struct {
	// The store: redis://..., rediss://..., redis-cluster://..., redis-sentinel://..., unix://...,
	// postgres://... or memory. The package of each store has its parameters.
	Store string `json:"store,omitempty"`

	// The beginning of the names of all entries in Redis; "latch:" unless set.
	Prefix string `json:"prefix,omitempty"`

	// The table in PostgreSQL, which is made if it is missing; "latch_entries" unless set.
	Table string `json:"table,omitempty"`

	// Keys of 32 bytes, in base64, that encrypt the kept answers. The first key encrypts, and
	// all keys decrypt.
	Seal []string `json:"seal,omitempty"`

	source   source
	shared   *shared // nil until it is in use
	measured bool
}

// CaddyModule is part of [caddy.Module].
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "latch", New: func() caddy.Module { return new(App) }}
}

// Provision opens the store, or uses the open store of an earlier configuration. It does not
// contact a server. Then it makes the guards, and looks for a reverse_proxy that would lose answers.
func (a *App) Provision(ctx caddy.Context) error {
	var err error
	if a.source, err = a.sourceOf(); err != nil {
		return fmt.Errorf("latch: %w", err)
	}
	m, err := useMeters(ctx.GetMetricsRegistry())
	if m != nil {
		a.measured = true
	}
	if err != nil {
		return fmt.Errorf("latch: metrics: %w", err)
	}
	if a.shared, err = a.source.use(ctx, m.telemetry); err != nil {
		return fmt.Errorf("latch: %w", err)
	}
	configured, err := ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil
	}
	if served, ok := configured.(*caddyhttp.App); ok {
		err = useRoutes(served, func(h *Handler) error { return h.use(a.shared.locker) })
	}
	return err
}

// Start contacts the store. A reload to a store that does not answer fails, because the running
// configuration may have one that does.
func (a *App) Start() error {
	running := caddy.ActiveContext()
	if err := a.shared.start(running.Context != nil); err != nil {
		return fmt.Errorf("latch: the store of the new configuration is not ready, and the running one stays: %w", err)
	}
	return nil
}

// Stop is part of [caddy.App]. The requests of this configuration may still run.
func (*App) Stop() error { return nil }

// Cleanup closes the store unless another configuration names it.
func (a *App) Cleanup() error {
	var errs []error
	if a.shared != nil {
		errs = append(errs, a.source.leave())
	}
	if a.measured {
		errs = append(errs, leaveMeters())
	}
	return errors.Join(errs...)
}

// sourceOf returns the store that a names, with the values of its placeholders.
func (a *App) sourceOf() (source, error) {
	var errs []error
	fill := func(option, text string) string {
		filled, err := caddy.NewReplacer().ReplaceOrErr(text, true, true)
		if err != nil {
			errs = append(errs, &mistake{option, err})
		}
		return filled
	}
	s := source{url: fill("store", a.Store), prefix: fill("prefix", a.Prefix), table: fill("table", a.Table)}
	for _, key := range a.Seal {
		s.seal += cmp.Or(strings.TrimSpace(fill("seal", key)), "-") + " " // an empty key is a wrong one, and not none
	}
	return s, errors.Join(errs...)
}

// parseApp reads the global option:
//
//	latch {
//		store <url>
//		prefix <text>
//		table <name>
//		seal <key> [<older key>...]
//	}
func parseApp(d *caddyfile.Dispenser, before any) (any, error) {
	a := new(App)
	d.Next()
	switch {
	case before != nil:
		return nil, d.Err("latch: the global options have latch twice: remove one of them")
	case d.NextArg():
		return nil, d.Err("latch: write its options in a block: latch { store ... }")
	}
	at := make(map[string]place)
	for d.NextBlock(0) {
		option := d.Val()
		args := d.RemainingArgs()
		one := map[string]*string{"store": &a.Store, "prefix": &a.Prefix, "table": &a.Table}[option]
		switch {
		case at[option] != place{}:
			return nil, d.Errf("latch: there are two lines with %s: remove one of them", option)
		case one != nil && len(args) == 1:
			*one = args[0]
		case option == "seal" && len(args) > 0:
			a.Seal = args
		case one != nil || option == "seal":
			return nil, d.Errf("latch: %s has %d values: write one", option, len(args))
		default:
			return nil, d.Errf("latch: there is no option %q: use one of prefix, seal, store, table", option)
		}
		at[option] = place{d.File(), d.Line()}
	}
	if a.Store == "" {
		return nil, d.Err("latch: there is no store: add " + addStore)
	}
	// The value of a placeholder may be known only where the configuration is loaded.
	if !strings.Contains(a.Store+a.Prefix+a.Table+strings.Join(a.Seal, ""), "{") {
		s, _ := a.sourceOf()
		if m, wrong := errors.AsType[*mistake](s.check()); wrong {
			return nil, fmt.Errorf("%v%w", at[m.option], m)
		}
	}
	return httpcaddyfile.App{Name: "latch", Value: caddyconfig.JSON(a, nil)}, nil
}

const addStore = "store redis://localhost:6379, or store memory for one process that may forget its answers when it restarts"

var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
