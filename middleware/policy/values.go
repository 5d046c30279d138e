package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// value reads the value of m as a T. It reports a value of another type, with want.
func value[T any](b *builder, m member, want string) (v T, read bool) {
	var got *T // stays nil for a null
	if json.Unmarshal(m.value, &got) != nil || got == nil {
		b.wrong(m.name, "%s is not %s", shown(m.value), want)
		return v, false
	}
	return *got, true
}

// shown returns a value as in the file, or its beginning or its kind if it is long.
func shown(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	if len(raw) > 40 {
		return string(raw[:40]) + "..."
	}
	return string(raw)
}

// duration reads a duration and passes it to set if it is valid.
func duration(validate func(d time.Duration) error, set func(b *builder, d time.Duration)) func(b *builder, m member) bool {
	const want = `a duration: write a number with a unit, in quotes, like "30s", "500ms" or "24h"`
	return func(b *builder, m member) bool {
		s, read := value[string](b, m, want)
		if !read {
			return false
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			b.wrong(m.name, "%s is not %s", shown(m.value), want)
			return false
		}
		if !b.accept(m.name, validate(d)) {
			return false
		}
		set(b, d)
		return true
	}
}

func lockerDuration(validate func(d time.Duration) error, option func(d time.Duration) lock.Option) func(b *builder, m member) bool {
	return duration(validate, func(b *builder, d time.Duration) { b.lockerOptions = append(b.lockerOptions, option(d)) })
}

// validateWait checks how long a request waits for another one.
func validateWait(d time.Duration) error {
	if d < 0 {
		return errors.New("the duration must not be negative")
	}
	return nil
}

// integer reads a whole number and passes it to set if it is valid.
func integer[T int | int64](validate func(n T) error, set func(b *builder, n T)) func(b *builder, m member) bool {
	return func(b *builder, m member) bool {
		n, read := value[T](b, m, "a whole number: write one, without quotes")
		if !read || !b.accept(m.name, validate(n)) {
			return false
		}
		set(b, n)
		return true
	}
}

// limit checks one limit of bodies.
func limit(n int64) error { return setting.ValidateLimits(n) }

func (b *builder) takeKind(m member) {
	const want = `a kind of guard: write "lock", "idempotent" or "dedupe"`
	kind, read := value[string](b, m, want)
	if _, known := needs[kind]; known {
		b.kind = kind
	} else if read {
		b.wrong(m.name, "%s is not %s", shown(m.value), want)
	}
}

func takeName(b *builder, m member) bool {
	name, read := value[string](b, m, `a name: write one in quotes, like "user"`)
	b.name = name
	return read && b.accept(m.name, setting.ValidateName(name))
}

// takeKey reads the name of a key function that the code offers.
func (b *builder) takeKey(m member, key *keyfunc.Func) bool {
	name, read := value[string](b, m, "the name of a key function: write one in quotes")
	if !read {
		return false
	}
	f, known := b.keys[name]
	if !known {
		b.wrong(m.name, "the code offers no key function %s: %s", shown(m.value), suggest(name, b.keyNames()))
	}
	*key = f
	return known
}

func takeFingerprint(b *builder, m member) bool {
	var f keyfunc.Func
	if !b.takeKey(m, &f) {
		return false
	}
	b.onceOptions = append(b.onceOptions, latch.WithFingerprint(f))
	return true
}

// contracts are the sets of options that a file can name.
var contracts = map[string]func() latch.Option{"acp": latch.ACP, "ucp": latch.UCP, "stripe": latch.Stripe}

func takeContract(b *builder, m member) bool {
	name, read := value[string](b, m, `the name of a contract: write "acp", "ucp" or "stripe"`)
	if !read {
		return false
	}
	options, known := contracts[name]
	if !known {
		b.wrong(m.name, `%s is not a known contract: write "acp", "ucp" or "stripe"`, shown(m.value))
		return false
	}
	b.contract = options()
	return true
}

func takeFinalBelow(b *builder, m member) bool {
	below, read := value[int](b, m, "a status: write a number, without quotes, like 400")
	if !read || !b.accept(m.name, validateFinalBelow(below)) {
		return false
	}
	b.onceOptions = append(b.onceOptions, latch.WithFinal(func(status int) bool { return status < below }))
	return true
}

func takeFailOpen(b *builder, m member) bool {
	open, read := value[bool](b, m, "true or false: write one of them, without quotes")
	o := latch.WithFailClosed()
	if open {
		o = latch.WithFailOpen()
		read = read && b.accept(m.name, b.locker.Validate(lock.WithFailOpen()))
	}
	b.lockOptions, b.onceOptions = append(b.lockOptions, o), append(b.onceOptions, o)
	return read
}

// onlyTrue refuses false: no option can undo a setting of the code, although a file with false
// would appear to do so.
func onlyTrue(set func(b *builder)) func(b *builder, m member) bool {
	return func(b *builder, m member) bool {
		on, read := value[bool](b, m, "true: write that, without quotes, or remove the field")
		if read && !on {
			b.wrong(m.name, "false takes nothing back that the code says: remove the field")
			return false
		}
		set(b)
		return read
	}
}

// validateFinalBelow checks the status below which answers are kept.
func validateFinalBelow(status int) error {
	if status <= 200 || status > 600 {
		return fmt.Errorf("%d keeps no answers, or all there are: write 300, 400 or 500", status)
	}
	return nil
}
