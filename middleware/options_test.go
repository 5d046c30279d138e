package middleware_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	nodes := []lock.Store{memstore.New(), memstore.New(), memstore.New()}
	locks := newLocker(t, quorum.New(nodes))
	tests := []struct {
		name string
		f    func()
		want string
	}{
		{"nil locker", func() { latch.Lock(nil, "user", byUser) }, "middleware.Lock: nil *lock.Locker"},
		{"empty name", func() { latch.Lock(l, "", byUser) }, "middleware.Lock: empty name"},
		{"reserved name", func() { latch.Lock(l, "once:user", byUser) }, `middleware.Lock: name "once:user"`},
		{"nil key function", func() { latch.Lock(l, "user", nil) }, "middleware.Lock: nil key function"},
		{"nil option", func() { latch.Lock(l, "user", byUser, nil) }, "middleware.Lock: nil option"},
		{"LockAll, nil locker", func() { latch.LockAll(nil, "item", bySKU) }, "middleware.LockAll: nil *lock.Locker"},
		{"LockAll, empty name", func() { latch.LockAll(l, "", bySKU) }, "middleware.LockAll: empty name"},
		{"LockAll, nil key function", func() { latch.LockAll(l, "item", nil) }, "middleware.LockAll: nil key function"},
		{"LockAll, nil option", func() { latch.LockAll(l, "item", bySKU, nil) }, "middleware.LockAll: nil option"},
		{"LockAll, permits", func() { latch.LockAll(l, "item", bySKU, latch.WithPermits(2)) }, "middleware.LockAll: WithPermits is for Lock"},
		{"no permits", func() { latch.WithPermits(0) }, "middleware.WithPermits(0): a key has 1 to 64 permits"},
		{"many permits", func() { latch.WithPermits(65) }, "middleware.WithPermits(65): a key has 1 to 64 permits"},
		{"Idempotent, nil locker", func() { latch.Idempotent(nil, byUser, byUser) }, "middleware.Idempotent: nil *lock.Locker"},
		{"Idempotent, nil scope", func() { latch.Idempotent(l, nil, byUser) }, "middleware.Idempotent: nil scope"},
		{"Idempotent, nil key", func() { latch.Idempotent(l, byUser, nil) }, "middleware.Idempotent: nil key function"},
		{"Idempotent, nil option", func() { latch.Idempotent(l, byUser, byUser, nil) }, "middleware.Idempotent: nil option"},
		{"Dedupe, nil locker", func() { latch.Dedupe(nil, byUser, time.Second) }, "middleware.Dedupe: nil *lock.Locker"},
		{"Dedupe, nil scope", func() { latch.Dedupe(l, nil, time.Second) }, "middleware.Dedupe: nil scope"},
		{"Dedupe, no window", func() { latch.Dedupe(l, byUser, 0) }, "middleware.Dedupe: a window of 0s"},
		{"Dedupe, nil option", func() { latch.Dedupe(l, byUser, time.Second, nil) }, "middleware.Dedupe: nil option"},
		{"Finish, nil locker", func() { _ = latch.Finish(t.Context(), nil, "", latch.Answer{}) }, "middleware.Finish: nil *lock.Locker"},
		{"Idempotent over a quorum", func() { latch.Idempotent(locks, byUser, byUser) }, "middleware.Idempotent: quorum: it keeps locks and cool-downs, and no receipts: for Once, Idempotent and Dedupe use one Redis"},
		{"Dedupe over a quorum", func() { latch.Dedupe(locks.With(), byUser, time.Second) }, "middleware.Dedupe: quorum: it keeps"},
		{"nil final", func() { latch.WithFinal(nil) }, "middleware.WithFinal: nil function"},
		{"a guard without a name", func() { latch.WithName("") }, `middleware.WithName(""): empty name`},
		{"a long name", func() { latch.WithName(strings.Repeat("ä", 32) + "b") }, "a name has at most 64 bytes of UTF-8"},
		{"a line break in a name", func() { latch.WithName("orders\n") }, `middleware.WithName("orders\n"): a name has`},
		{"DEL in a name", func() { latch.WithName("a\x7f") }, "no control characters"},
		{"a name that is no UTF-8", func() { latch.WithName("\xff") }, "a name has at most 64 bytes of UTF-8"},
		{"nil label", func() { latch.WithLabel(nil) }, "middleware.WithLabel: nil function"},
		{"nil fingerprint", func() { latch.WithFingerprint(nil) }, "middleware.WithFingerprint: nil key function"},
		{"no request limit", func() { latch.WithBodyLimits(0, 1) }, "middleware.WithBodyLimits(0, 1)"},
		{"negative response limit", func() { latch.WithBodyLimits(1, -1) }, "middleware.WithBodyLimits(1, -1)"},
		{"nil option in With", func() { latch.With(latch.WithFailOpen(), nil) }, "middleware.With: nil option"},
		{"nil error handler", func() { latch.WithErrorHandler(nil) }, "middleware.WithErrorHandler: nil function"},
		{"no cool-down", func() { latch.WithCooldown(0) }, "middleware.WithCooldown(0s)"},
		{"negative cool-down", func() { latch.WithCooldown(-time.Second) }, "middleware.WithCooldown(-1s)"},
		{"200 for contention", func() { latch.WithContentionStatus(200) }, "middleware.WithContentionStatus(200)"},
		{"423 for a cool-down", func() { latch.WithCooldownStatus(423) }, "middleware.WithCooldownStatus(423)"},
		{"200 for a cool-down", func() { latch.WithCooldownStatus(200) }, "middleware.WithCooldownStatus(200)"},
		{"0 for a request in progress", func() { latch.WithInProgressStatus(0) }, "middleware.WithInProgressStatus(0)"},
		{"423 for a request in progress", func() { latch.WithInProgressStatus(423) }, "middleware.WithInProgressStatus(423)"},
		{"no hold", func() { latch.WithUnknownHold(0) }, "middleware.WithUnknownHold(0s)"},
		{"a short secret", func() { latch.WithKeySecret(make([]byte, 15)) }, "middleware.WithKeySecret"},
		{"a hold over a quorum", func() { latch.Lock(locks, "user", byUser, latch.WithUnknownHold(time.Second)) }, "middleware.Lock: "},
		{"no limit for the body", func() { latch.WithBodyFirst(0) }, "middleware.WithBodyFirst(0)"},
		{"negative limit for the body", func() { latch.WithBodyFirst(-1) }, "middleware.WithBodyFirst(-1)"},
		{"503 for contention", func() { latch.WithContentionStatus(503) }, "middleware.WithContentionStatus(503)"},
	}
	for _, tt := range tests {
		func() {
			defer func() {
				text, ok := recover().(string)
				require.True(t, ok, "%s: panics with a text", tt.name)
				require.Contains(t, text, tt.want, tt.name)
			}()
			tt.f()
		}()
	}
}

func TestWithCarriesDefaults(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	hold(t, l)
	teapot := func(w http.ResponseWriter, _ *http.Request, _ *latch.Problem) { w.WriteHeader(http.StatusTeapot) }
	gone := func(w http.ResponseWriter, _ *http.Request, _ *latch.Problem) { w.WriteHeader(http.StatusGone) }
	defaults := latch.With(latch.WithErrorHandler(gone), latch.With(latch.WithErrorHandler(teapot)))

	h := latch.Lock(l, "user", byUser, defaults, latch.WithCooldown(time.Second))(mustNotRun(t))
	require.Equal(t, http.StatusTeapot, serve(h, post("42")).Code, "of two that set the same, the last counts")
	h = latch.Lock(l, "user", byUser, defaults, latch.WithErrorHandler(gone))(mustNotRun(t))
	require.Equal(t, http.StatusGone, serve(h, post("42")).Code, "a route overrules the defaults")
	h = latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, latch.WithFinal(func(int) bool { return true }), defaults)(mustNotRun(t))
	require.Equal(t, http.StatusTeapot, serve(h, keyed("")).Code)
	h = latch.Lock(l, "user", byUser, latch.With())(mustNotRun(t))
	require.Equal(t, http.StatusConflict, serve(h, post("42")).Code)
}

// TestWhatDoesNotCompile: a scope that was forgotten, and options where they
// would do nothing.
func TestWhatDoesNotCompile(t *testing.T) {
	t.Parallel()
	scopeAndKey := reflect.TypeFor[func(*lock.Locker, keyfunc.Func, keyfunc.Func, ...latch.IdempotentOption) func(http.Handler) http.Handler]()
	require.Equal(t, scopeAndKey, reflect.TypeOf(latch.Idempotent))

	_, ok := latch.WithCooldown(time.Second).(latch.IdempotentOption)
	require.False(t, ok)
	_, ok = latch.WithContentionStatus(423).(latch.IdempotentOption)
	require.False(t, ok)
	_, ok = latch.WithCooldownStatus(409).(latch.IdempotentOption)
	require.False(t, ok)
	_, ok = latch.WithBodyFirst(1).(latch.IdempotentOption)
	require.False(t, ok)
	_, ok = latch.WithPermits(1).(latch.IdempotentOption)
	require.False(t, ok)
	for _, o := range []latch.IdempotentOption{
		latch.WithFinal(func(int) bool { return true }), latch.WithFingerprint(byUser), latch.WithBodyLimits(1, 1),
		latch.WithName("orders"), latch.WithLabel(func(*http.Request) string { return "" }),
	} {
		_, ok = o.(latch.LockOption)
		require.False(t, ok)
	}
}
