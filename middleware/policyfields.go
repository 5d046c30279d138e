package middleware

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// The kinds of guards that a policies file can ask for.
const (
	kindLock       = "lock"
	kindIdempotent = "idempotent"
	kindDedupe     = "dedupe"
)

// needs is what each kind cannot do without.
var needs = map[string][]string{
	kindLock:       {"name", "key"},
	kindIdempotent: {"scope", "key"},
	kindDedupe:     {"scope", "window"},
}

// policyField is a field that policies of some kinds can have.
type policyField struct {
	kinds []string
	take  func(b *builder, m member) (read bool)
}

var (
	anyKind = []string{kindLock, kindIdempotent, kindDedupe}
	locks   = []string{kindLock}
	onces   = []string{kindIdempotent, kindDedupe}
	keyed   = []string{kindLock, kindIdempotent}
)

// policyFields are all fields except the kind.
var policyFields = map[string]policyField{
	"name":        {locks, takeName},
	"key":         {keyed, func(b *builder, m member) bool { return b.takeKey(m, &b.key) }},
	"scope":       {onces, func(b *builder, m member) bool { return b.takeKey(m, &b.scope) }},
	"window":      {[]string{kindDedupe}, duration(validateWindow, func(b *builder, d time.Duration) { b.window = d })},
	"fingerprint": {onces, takeFingerprint},

	"lease":           {anyKind, lockerDuration(lock.WithLease)},
	"max_hold":        {anyKind, lockerDuration(lock.WithMaxHold)},
	"wait":            {anyKind, lockerDuration(lock.WithWait)},
	"keep":            {[]string{kindIdempotent}, lockerDuration(lock.WithKeep)},
	"rerun_abandoned": {onces, takeRerun},

	"cooldown": {locks, duration(validatePositive, func(b *builder, d time.Duration) {
		b.lockOptions = append(b.lockOptions, WithCooldown(d))
	})},
	"cooldown_status": {locks, integer(validateCooldownStatus, func(b *builder, code int) {
		b.lockOptions = append(b.lockOptions, WithCooldownStatus(code))
	})},
	"body_first": {locks, integer(validateBodyFirst, func(b *builder, n int64) {
		b.lockOptions = append(b.lockOptions, WithBodyFirst(n))
	})},
	"contention_status": {locks, integer(validateContentionStatus, func(b *builder, code int) {
		b.lockOptions = append(b.lockOptions, WithContentionStatus(code))
	})},
	"final_below":    {onces, takeFinalBelow},
	"request_limit":  {onces, integer(limit, func(b *builder, n int64) { b.request = n })},
	"response_limit": {onces, integer(limit, func(b *builder, n int64) { b.response = n })},
	"fail_open":      {anyKind, takeFailOpen},
}

// read takes in the fields of the policy, each of them whatever is wrong with
// the others.
func (b *builder) read(fields []member) {
	for _, m := range fields {
		b.places[m.name] = m.valueAt
	}
	if i := slices.IndexFunc(fields, func(m member) bool { return m.name == "kind" }); i >= 0 {
		b.takeKind(fields[i])
	} else if fields != nil {
		b.wrong("", `it has no kind: add "kind": "lock", "idempotent" or "dedupe"`)
	}
	for _, m := range fields {
		field, known := policyFields[m.name]
		switch {
		case m.name == "kind":
		case !known:
			b.report(m.at, "guard %q: there is no field %q: %s", b.policy.name, m.name, suggest(m.name, b.fieldNames()))
		case b.kind != "" && !slices.Contains(field.kinds, b.kind):
			b.report(m.at, "guard %q: %q is for guards of kind %s, and this one is of kind %s: remove it",
				b.policy.name, m.name, strings.Join(field.kinds, " or "), b.kind)
		case !field.take(b, m):
			b.unread[m.name] = true
		}
	}
	for _, name := range needs[b.kind] {
		if b.present(name) == "" {
			b.wrong("", "it has no %s, which guards of kind %s need: add it", name, b.kind)
		}
	}
}

// fieldNames are those of the fields that a policy of this kind can have.
func (b *builder) fieldNames() []string {
	names := []string{"kind"}
	for name, f := range policyFields {
		if b.kind == "" || slices.Contains(f.kinds, b.kind) {
			names = append(names, name)
		}
	}
	return names
}

func (b *builder) keyNames() []string { return slices.Collect(maps.Keys(b.keys)) }

// suggest names the known name that was meant, or all of them.
func suggest(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "write " + near
	}
	if len(known) == 0 {
		return "the code offers none"
	}
	return "use one of " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}
