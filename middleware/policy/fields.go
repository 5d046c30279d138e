package policy

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// The kinds of guards that a file can ask for.
const (
	kindLock       = "lock"
	kindIdempotent = "idempotent"
	kindDedupe     = "dedupe"
)

// needs are the required fields of each kind.
var needs = map[string][]string{
	kindLock:       {"name", "key"},
	kindIdempotent: {"scope", "key"},
	kindDedupe:     {"scope", "window"},
}

// field is a field that guards of some kinds can have.
type field struct {
	kinds []string
	take  func(b *builder, m member) (read bool)
}

var (
	anyKind = []string{kindLock, kindIdempotent, kindDedupe}
	locks   = []string{kindLock}
	onces   = []string{kindIdempotent, kindDedupe}
	keyed   = []string{kindLock, kindIdempotent}
)

// allFields are all fields except the kind.
var allFields = map[string]field{
	"name":        {locks, takeName},
	"key":         {keyed, func(b *builder, m member) bool { return b.takeKey(m, &b.key) }},
	"scope":       {onces, func(b *builder, m member) bool { return b.takeKey(m, &b.scope) }},
	"window":      {[]string{kindDedupe}, duration(setting.ValidatePositive, func(b *builder, d time.Duration) { b.window = d })},
	"fingerprint": {onces, takeFingerprint},
	"contract":    {keyed, takeContract},

	"lease":           {anyKind, lockerDuration(setting.ValidatePositive, lock.WithLease)},
	"max_hold":        {anyKind, lockerDuration(setting.ValidatePositive, lock.WithMaxHold)},
	"wait":            {anyKind, lockerDuration(validateWait, lock.WithWait)},
	"keep":            {[]string{kindIdempotent}, lockerDuration(setting.ValidatePositive, lock.WithKeep)},
	"rerun_abandoned": {onces, onlyTrue(func(b *builder) { b.lockerOptions = append(b.lockerOptions, lock.WithRerunAbandoned()) })},

	"cooldown": {locks, duration(setting.ValidatePositive, func(b *builder, d time.Duration) {
		b.lockOptions = append(b.lockOptions, latch.WithCooldown(d))
	})},
	"cooldown_status": {locks, integer(setting.CooldownStatuses.Validate, func(b *builder, code int) {
		b.lockOptions = append(b.lockOptions, latch.WithCooldownStatus(code))
	})},
	"body_first": {locks, integer(limit, func(b *builder, n int64) {
		b.lockOptions = append(b.lockOptions, latch.WithBodyFirst(n))
	})},
	"contention_status": {locks, integer(setting.ContentionStatuses.Validate, func(b *builder, code int) {
		b.lockOptions = append(b.lockOptions, latch.WithContentionStatus(code))
	})},
	"unknown_hold": {locks, duration(setting.ValidatePositive, func(b *builder, d time.Duration) {
		b.lockOptions = append(b.lockOptions, latch.WithUnknownHold(d))
	})},
	"lifetime_header": {onces, onlyTrue(func(b *builder) { b.onceOptions = append(b.onceOptions, latch.WithLifetimeHeader()) })},
	"in_progress_status": {onces, integer(setting.InProgressStatuses.Validate, func(b *builder, code int) {
		b.onceOptions = append(b.onceOptions, latch.WithInProgressStatus(code))
	})},
	"final_below":    {onces, takeFinalBelow},
	"request_limit":  {onces, integer(limit, func(b *builder, n int64) { b.request = n })},
	"response_limit": {onces, integer(limit, func(b *builder, n int64) { b.response = n })},
	"fail_open":      {anyKind, takeFailOpen},
}

// read reads all fields of the guard, also after a mistake.
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
		f, known := allFields[m.name]
		switch {
		case m.name == "kind":
		case !known:
			b.report(m.at, "guard %q: there is no field %q: %s", b.own.name, m.name, suggest(m.name, b.fieldNames()))
		case b.kind != "" && !slices.Contains(f.kinds, b.kind):
			b.report(m.at, "guard %q: %q is for guards of kind %s, and this one is of kind %s: remove it",
				b.own.name, m.name, strings.Join(f.kinds, " or "), b.kind)
		case !f.take(b, m):
			b.unread[m.name] = true
		}
	}
	if b.kind == kindLock && b.present("cooldown_status") != "" && b.present("cooldown") == "" {
		b.wrong("cooldown_status", `there is no cooldown that it could be the status of: add "cooldown", like "2s", or remove it`)
	}
	for _, name := range needs[b.kind] {
		if b.present(name) == "" {
			b.wrong("", "it has no %s, which guards of kind %s need: add it", name, b.kind)
		}
	}
}

// fieldNames returns the fields that a guard of this kind can have.
func (b *builder) fieldNames() []string {
	names := []string{"kind"}
	for name, f := range allFields {
		if b.kind == "" || slices.Contains(f.kinds, b.kind) {
			names = append(names, name)
		}
	}
	return names
}

func (b *builder) keyNames() []string { return slices.Collect(maps.Keys(b.keys)) }

// suggest names the known name that is nearest, or all of them.
func suggest(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "write " + near
	}
	if len(known) == 0 {
		return "the code offers none"
	}
	return "use one of " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}
