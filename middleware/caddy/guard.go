package latchcaddy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/policy"
)

const (
	kindIdempotent = "idempotent"
	kindDedupe     = "dedupe"
	kindLock       = "lock"
	kindRefuse     = "refuse"
)

// guard is a guard of a configuration, in the vocabulary of package policy.
type guard struct {
	kind, name string
	fields     []field
	at         place
}

type field struct {
	name  string
	value json.RawMessage
	at    place
}

// place is a place in a Caddyfile; empty in JSON, which Caddy has rewritten.
type place struct {
	file string
	line int
}

func (p place) String() string {
	if p.file == "" {
		return "latch: "
	}
	return fmt.Sprintf("%s:%d: latch: ", p.file, p.line)
}

// guardOf reads a guard of the JSON configuration.
func guardOf(raw json.RawMessage) (guard, error) {
	g := guard{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return g, errors.New(`latch: a guard has to be an object, like {"kind": "idempotent", ...}`)
	}
	for dec.More() {
		var f field
		name, err := dec.Token()
		if err == nil {
			f.name, _ = name.(string)
			err = dec.Decode(&f.value)
		}
		if err != nil {
			return g, fmt.Errorf("latch: a guard cannot be read: %w", err)
		}
		switch f.name {
		case "guard":
			err = json.Unmarshal(f.value, &g.name)
		case "kind":
			err = json.Unmarshal(f.value, &g.kind)
		default:
			g.fields = append(g.fields, f)
		}
		if err != nil {
			return g, fmt.Errorf("latch: %s is not a text: %s", f.name, f.value)
		}
	}
	return g, nil
}

// raw is the inverse of guardOf.
func (g *guard) raw() json.RawMessage {
	object := map[string]json.RawMessage{"kind": quoted(g.kind)}
	if g.name != "" {
		object["guard"] = quoted(g.name)
	}
	for _, f := range g.fields {
		object[f.name] = f.value
	}
	raw, _ := json.Marshal(object) // texts, numbers and booleans
	return raw
}

func quoted(s string) json.RawMessage {
	raw, _ := json.Marshal(s)
	return raw
}

// keyFields are the fields of each kind that name keys.
var keyFields = []string{"scope", "key", "fingerprint"} //nolint:gochecknoglobals // a table

// build makes the guard over l. Its error has all mistakes.
func (g *guard) build(l *lock.Locker) (func(http.Handler) http.Handler, error) {
	if g.kind == kindRefuse {
		if len(g.fields) > 0 {
			return nil, fmt.Errorf("%vguard %q: %q is for other guards than refuse: remove it", g.fields[0].at, g.kind, g.fields[0].name)
		}
		return middleware.Refuse(), nil
	}
	name := cmp.Or(g.name, g.kind, "guard")
	offered, errs := make(map[string]keyfunc.Func), []error(nil)
	for _, f := range g.fields {
		var text string
		for _, key := range keyFields {
			if f.name != key || json.Unmarshal(f.value, &text) != nil {
				continue
			}
			fn, err := keyOf(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%vguard %q, %s: %w", f.at, name, key, err))
				continue
			}
			offered[offer(key, text)] = fn
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if g.kind != kindLock { // in a lock, no field but the key has one
		for name, fn := range offered {
			if strings.HasPrefix(name, offer("scope", "")) {
				offered[name] = keyfunc.Join(host, fn)
			}
		}
	}
	text, at := g.text(name)
	guards, err := policy.Load(strings.NewReader(text), l, offered)
	if err != nil {
		return nil, relocated(err, at)
	}
	return guards.Get(name), nil
}

// offer returns the name under which package policy finds the key of a field. The name contains the
// field: a scope also has the host, so it differs from a key with the same text.
func offer(field, text string) string { return field + " " + text }

// host keeps the requests of two sites apart that share a store. The port is left out, because a
// site behind two listeners is one site.
func host(r *http.Request) (string, error) {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = r.Host
	}
	return strings.ToLower(cmp.Or(name, "-")), nil
}

// text returns the guard as a file of package policy, and the place of each of its lines.
func (g *guard) text(name string) (text string, at []place) {
	var b strings.Builder
	line := func(p place, format string, args ...any) {
		fmt.Fprintf(&b, format+"\n", args...)
		at = append(at, p)
	}
	line(g.at, "{%s: {", quoted(name))
	separator := " "
	if g.kind != "" {
		line(g.at, `"kind": %s`, quoted(g.kind))
		separator = ","
	}
	for _, f := range g.fields {
		value := string(f.value)
		for _, key := range keyFields {
			var s string
			if f.name == key && json.Unmarshal(f.value, &s) == nil {
				value = string(quoted(offer(key, s)))
			}
		}
		line(f.at, "%s%s: %s", separator, quoted(f.name), value)
		separator = ","
	}
	line(g.at, "}}")
	return b.String(), at
}

// inCaddyfile returns the cure of an error of package policy, which is for JSON, for a Caddyfile.
func inCaddyfile(text string) string {
	i := strings.LastIndex(text, ": ") + 1
	return text[:i] + forCaddyfile.Replace(text[i:])
}

var forCaddyfile = strings.NewReplacer( //nolint:gochecknoglobals // a table
	", in quotes", "", " in quotes", "", ", without quotes", "", `"`, "", "the field", "it", " kind,", "", " name,", "")

var located = regexp.MustCompile(`^line (\d+), column \d+: `) //nolint:gochecknoglobals // compiled once

// relocated returns err with the places of the configuration.
func relocated(err error, at []place) error {
	var errs []error
	for text := range strings.Lines(err.Error()) {
		text = strings.TrimSuffix(text, "\n")
		p := place{}
		if m := located.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			if line, _ := strconv.Atoi(m[1]); line > 0 && line <= len(at) {
				p = at[line-1]
			}
		}
		if p.file != "" {
			text = inCaddyfile(text)
		}
		errs = append(errs, errors.New(p.String()+text))
	}
	return errors.Join(errs...)
}

// check reports the mistakes of guards without a store.
func check(all []guard) error {
	l := lock.New(memstore.New(), lock.WithLogger(slog.New(slog.DiscardHandler)))
	var errs []error
	for _, g := range all {
		_, err := g.build(l)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
