package policy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// guard is a guard of a file.
type guard struct {
	name string
	at   int // offset of the name
	wrap func(http.Handler) http.Handler
}

// build makes the guards of d, and reports its mistakes.
func (d *document) build(l *lock.Locker, keys map[string]keyfunc.Func, defaults latch.Option) []guard {
	var all []guard
	for _, m := range d.guards() {
		b := &builder{
			document: d, own: m, locker: l, keys: keys, places: make(map[string]int), unread: make(map[string]bool),
			lockOptions: []latch.LockOption{defaults}, onceOptions: []latch.IdempotentOption{defaults},
			request: setting.DefaultBodyLimit, response: setting.DefaultBodyLimit,
		}
		all = append(all, guard{name: m.name, at: m.at, wrap: b.guard()})
	}
	return all
}

// builder collects the fields of one guard.
type builder struct {
	*document
	own    member // the guard
	locker *lock.Locker
	keys   map[string]keyfunc.Func // that a file may name
	places map[string]int          // offsets of the values of its fields
	unread map[string]bool         // fields with an unreadable value

	kind              string // "" if unknown
	name              string
	scope, key        keyfunc.Func
	window            time.Duration
	contract          latch.Option // nil: none
	request, response int64
	lockerOptions     []lock.Option
	lockOptions       []latch.LockOption
	onceOptions       []latch.IdempotentOption
}

// wrong reports a mistake in the value of a field, or in the guard if the guard lacks the field.
func (b *builder) wrong(field, format string, args ...any) {
	at, given := b.places[field]
	if !given {
		b.report(b.own.at, "guard %q: "+format, append([]any{b.own.name}, args...)...)
		return
	}
	b.report(at, "guard %q, %s: "+format, append([]any{b.own.name, field}, args...)...)
}

// accept reports err, if there is one, as a mistake in the value of the field.
func (b *builder) accept(field string, err error) (ok bool) {
	if err != nil {
		b.wrong(field, "%v", err)
	}
	return err == nil
}

// guard returns the guard, or nil if it has reported a mistake.
func (b *builder) guard() func(http.Handler) http.Handler {
	before := len(b.findings)
	if b.own.name == "" {
		b.report(b.own.at, `a guard without a name: give it one, like "submit-order"`)
	}
	b.read(b.members(b.own.valueAt, `an object with the fields of a guard, like {"kind": "lock", ...}`))
	if !b.unread["lease"] && !b.unread["max_hold"] {
		b.accept(b.present("lease", "max_hold"), b.locker.Validate(b.lockerOptions...))
	}
	if b.kind == kindIdempotent || b.kind == kindDedupe {
		b.accept("kind", setting.ValidateReceipts(b.locker))
		if b.own.name != "" {
			b.accept("", setting.ValidateGuardName(b.own.name))
		}
	}
	if b.present("unknown_hold") != "" {
		b.accept("unknown_hold", setting.ValidateReceipts(b.locker))
	}
	if len(b.findings) > before {
		return nil
	}
	l := b.locker.With(b.lockerOptions...)
	if b.contract != nil { // the fields override it, wherever it stands in the file
		b.lockOptions = slices.Insert(b.lockOptions, 1, latch.LockOption(b.contract))
		b.onceOptions = slices.Insert(b.onceOptions, 1, latch.IdempotentOption(b.contract))
	}
	return b.make(l)
}

// make calls the constructor of the guard. A contract among the options of the code can demand a longer keep than that of
// the file.
func (b *builder) make(l *lock.Locker) (wrap func(http.Handler) http.Handler) {
	defer func() {
		p := recover()
		if mistake, is := strings.CutPrefix(fmt.Sprint(p), "middleware.Idempotent: "); is {
			b.wrong(b.present("keep", "contract"), "%s", mistake)
		} else if p != nil {
			panic(p)
		}
	}()
	if b.kind == kindLock {
		return latch.Lock(l, b.name, b.key, b.lockOptions...)
	}
	b.onceOptions = append(b.onceOptions, latch.WithBodyLimits(b.request, b.response), latch.WithName(b.own.name))
	switch b.kind {
	case kindIdempotent:
		return latch.Idempotent(l, b.scope, b.key, b.onceOptions...)
	default:
		return latch.Dedupe(l, b.scope, b.window, b.onceOptions...)
	}
}

// present returns the first of these fields that the guard has, or "".
func (b *builder) present(fields ...string) string {
	for _, f := range fields {
		if _, given := b.places[f]; given {
			return f
		}
	}
	return ""
}
