package latchcaddy

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// UnmarshalCaddyfile reads the directive. Its error has all mistakes, each with its line.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the directive, or the matcher
	if d.NextArg() {
		return d.Errf("latch: %q is not a matcher: write the guards in a block", d.Val())
	}
	var all []guard
	for d.NextBlock(0) {
		g, err := parseGuard(d)
		if err != nil {
			return err
		}
		all = append(all, g)
		h.Guards = append(h.Guards, g.raw())
	}
	if len(all) == 0 {
		return d.WrapErr(errNoGuard)
	}
	return check(all)
}

func parseGuard(d *caddyfile.Dispenser) (guard, error) {
	g := guard{kind: d.Val(), at: place{d.File(), d.Line()}}
	args := d.RemainingArgs()
	if len(args) > 1 {
		return g, d.Errf("latch: %s has %d names: write one", g.kind, len(args))
	}
	if len(args) == 1 {
		g.name = args[0]
	}
	if strings.HasPrefix(g.name, "/") || strings.HasPrefix(g.name, "@") {
		return g, d.Errf("latch: %q would be the name of the guard, and not a matcher: write latch %s { %s { ... } }", g.name, g.name, g.kind)
	}
	switch g.kind {
	case kindIdempotent, kindDedupe, kindRefuse:
	case kindLock:
		if g.name == "" {
			return g, d.Err(`latch: a lock has no name: say what its key is, like "lock user" or "lock order"`)
		}
		// Other processes know a lock by its name.
		g.fields = append(g.fields, field{"name", quoted(g.name), g.at})
	default:
		return g, d.Errf("latch: there is no guard %q: use idempotent, dedupe, lock or refuse", g.kind)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		f := field{name: d.Val(), at: place{d.File(), d.Line()}}
		if slices.Contains(onlyJSON, f.name) {
			return g, d.Errf("latch: guard %q: there is no %s: write idempotent, dedupe or lock, and a name behind it", g.kind, f.name)
		}
		if slices.ContainsFunc(g.fields, func(o field) bool { return o.name == f.name }) {
			return g, d.Errf("latch: guard %q has %s twice: remove one of them", g.kind, f.name)
		}
		args := d.RemainingArgs()
		value, err := valueOf(f.name, args)
		if err != nil {
			return g, d.Errf("latch: guard %q, %s: %v", g.kind, f.name, err)
		}
		f.value = value
		g.fields = append(g.fields, f)
	}
	return g, nil
}

// onlyJSON are the fields whose values are written before the brace.
var onlyJSON = []string{"kind", "guard", "name"} //nolint:gochecknoglobals // a table

// valueOf returns the value of a field in JSON. A field alone is a switch. Package policy reports a value of
// the wrong type.
func valueOf(name string, args []string) (json.RawMessage, error) {
	isKey := slices.Contains(keyFields, name)
	switch {
	case isKey && len(args) > 0:
		return quoted(strings.Join(args, " ")), nil
	case isKey, len(args) > 1:
		return nil, errors.New("write one value behind it")
	case len(args) == 0:
		return json.RawMessage("true"), nil
	}
	text := strings.ToLower(args[0])
	if _, err := strconv.ParseUint(text, 10, 63); err == nil && json.Valid([]byte(text)) || text == "true" || text == "false" {
		return json.RawMessage(text), nil
	}
	return quoted(args[0]), nil
}
