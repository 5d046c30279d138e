package middleware

import (
	"net/http"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// policy is a guard of a policies file.
type policy struct {
	name  string
	at    int // offset of the name
	guard func(http.Handler) http.Handler
}

// policies makes the guards of d, and reports what is wrong with them.
func (d *document) policies(l *lock.Locker, keys map[string]keyfunc.Func, defaults Option) []policy {
	var all []policy
	for _, m := range d.guards() {
		b := &builder{
			document: d, policy: m, locker: l, keys: keys, places: make(map[string]int), unread: make(map[string]bool),
			lockOptions: []LockOption{defaults}, onceOptions: []IdempotentOption{defaults},
			request: defaultBodyLimit, response: defaultBodyLimit,
		}
		all = append(all, policy{name: m.name, at: m.at, guard: b.build()})
	}
	return all
}

// builder collects what the fields of one policy say.
type builder struct {
	*document
	policy member
	locker *lock.Locker
	keys   map[string]keyfunc.Func // those that a file may name
	places map[string]int          // where the values of its fields are
	unread map[string]bool         // fields whose values say nothing

	kind              string // "" if that is not known
	name              string
	scope, key        keyfunc.Func
	window            time.Duration
	request, response int64
	lockerOptions     []lock.Option
	lockOptions       []LockOption
	onceOptions       []IdempotentOption
}

// wrong reports a mistake in the value of a field, or in the policy if it does
// not have the field.
func (b *builder) wrong(field, format string, args ...any) {
	at, given := b.places[field]
	if !given {
		b.report(b.policy.at, "guard %q: "+format, append([]any{b.policy.name}, args...)...)
		return
	}
	b.report(at, "guard %q, %s: "+format, append([]any{b.policy.name, field}, args...)...)
}

// accept reports err, if there is one, as a mistake in the value of the field.
func (b *builder) accept(field string, err error) (ok bool) {
	if err != nil {
		b.wrong(field, "%v", err)
	}
	return err == nil
}

// build returns the guard, or nil if it reported something.
func (b *builder) build() func(http.Handler) http.Handler {
	before := len(b.findings)
	if b.policy.name == "" {
		b.report(b.policy.at, `a guard without a name: give it one, like "submit-order"`)
	}
	b.read(b.members(b.policy.valueAt, `an object with the fields of a guard, like {"kind": "lock", ...}`))
	if !b.unread["lease"] && !b.unread["max_hold"] {
		b.accept(b.present("lease", "max_hold"), b.locker.Validate(b.lockerOptions...))
	}
	if b.kind == kindIdempotent || b.kind == kindDedupe {
		b.accept("kind", validateReceipts(b.locker))
	}
	if len(b.findings) > before {
		return nil
	}
	l := b.locker.With(b.lockerOptions...)
	b.onceOptions = append(b.onceOptions, WithBodyLimits(b.request, b.response))
	switch b.kind {
	case kindLock:
		return Lock(l, b.name, b.key, b.lockOptions...)
	case kindIdempotent:
		return Idempotent(l, b.scope, b.key, b.onceOptions...)
	default:
		return Dedupe(l, b.scope, b.window, b.onceOptions...)
	}
}

// present is the first of these fields that the policy has, or "".
func (b *builder) present(fields ...string) string {
	for _, f := range fields {
		if _, given := b.places[f]; given {
			return f
		}
	}
	return ""
}
