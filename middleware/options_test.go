package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
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
	for _, tt := range []struct {
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
		{"LockAll, permits", func() { latch.LockAll(l, "item", bySKU, latch.WithPermits(2)) }, "middleware.LockAll: WithPermits is for Lock"},
		{"no permits", func() { latch.WithPermits(0) }, "middleware.WithPermits(0): a key has 1 to 64 permits"},
		{"Idempotent, nil locker", func() { latch.Idempotent(nil, byUser, byUser) }, "middleware.Idempotent: nil *lock.Locker"},
		{"Idempotent, nil scope", func() { latch.Idempotent(l, nil, byUser) }, "middleware.Idempotent: nil scope"},
		{"Idempotent, nil key", func() { latch.Idempotent(l, byUser, nil) }, "middleware.Idempotent: nil key function"},
		{"Idempotent, nil option", func() { latch.Idempotent(l, byUser, byUser, nil) }, "middleware.Idempotent: nil option"},
		{"Dedupe, nil locker", func() { latch.Dedupe(nil, byUser, time.Second) }, "middleware.Dedupe: nil *lock.Locker"},
		{"Dedupe, nil scope", func() { latch.Dedupe(l, nil, time.Second) }, "middleware.Dedupe: nil scope"},
		{"Finish, nil locker", func() { _ = latch.Finish(t.Context(), nil, "", latch.Answer{}) }, "middleware.Finish: nil *lock.Locker"},
		{"Idempotent over a quorum", func() { latch.Idempotent(locks, byUser, byUser) }, "middleware.Idempotent: quorum: it keeps locks and cool-downs, and no receipts: for Once, Idempotent and Dedupe use one Redis"},
		{"nil final", func() { latch.WithFinal(nil) }, "middleware.WithFinal: nil function"},
		{"a guard without a name", func() { latch.WithName("") }, `middleware.WithName(""): empty name`},
		{"a long name", func() { latch.WithName(strings.Repeat("ä", 32) + "b") }, "a name has at most 64 bytes of UTF-8"},
		{"a line break in a name", func() { latch.WithName("orders\n") }, `middleware.WithName("orders\n"): a name has`},
		{"a name that is no UTF-8", func() { latch.WithName("\xff") }, "a name has at most 64 bytes of UTF-8"},
		{"nil label", func() { latch.WithLabel(nil) }, "middleware.WithLabel: nil function"},
		{"nil fingerprint", func() { latch.WithFingerprint(nil) }, "middleware.WithFingerprint: nil key function"},
		{"nil option in With", func() { latch.With(latch.WithFailOpen(), nil) }, "middleware.With: nil option"},
		{"nil error handler", func() { latch.WithErrorHandler(nil) }, "middleware.WithErrorHandler: nil function"},
		{"a short secret", func() { latch.WithKeySecret(make([]byte, 15)) }, "middleware.WithKeySecret"},
		{"a hold over a quorum", func() { latch.Lock(locks, "user", byUser, latch.WithUnknownHold(time.Second)) }, "middleware.Lock: "},
		{"Upstream, nil option", func() { latch.Upstream(nil, nil) }, "middleware.Upstream: nil option"},
		{"WithReplay, nil function", func() { latch.WithReplay(nil) }, "middleware.WithReplay: nil function"},
		{"JSONRPC, nil function", func() { latch.JSONRPC(nil) }, "middleware.JSONRPC: nil function"},
	} {
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

// TestWhatDoesNotCompile: a scope that was forgotten, and options where they would do nothing.
func TestWhatDoesNotCompile(t *testing.T) {
	t.Parallel()
	scopeAndKey := reflect.TypeFor[func(*lock.Locker, keyfunc.Func, keyfunc.Func, ...latch.IdempotentOption) func(http.Handler) http.Handler]()
	require.Equal(t, scopeAndKey, reflect.TypeOf(latch.Idempotent))

	ofLock, ofIdempotent := reflect.TypeFor[latch.LockOption](), reflect.TypeFor[latch.IdempotentOption]()
	require.False(t, ofLock.Implements(ofIdempotent) || ofIdempotent.Implements(ofLock))
	for want, options := range map[reflect.Type][]any{
		ofLock:       {latch.WithCooldown, latch.WithContentionStatus, latch.WithCooldownStatus, latch.WithBodyFirst, latch.WithPermits},
		ofIdempotent: {latch.WithFinal, latch.WithFingerprint, latch.WithBodyLimits, latch.WithName, latch.WithLabel},
	} {
		for _, o := range options {
			require.Equal(t, want, reflect.TypeOf(o).Out(0))
		}
	}
}

// Events of each kind, and hints in the log, have the guard's name, up to the longest one.
func TestGuardNames(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("ä", 32)
	for name, tt := range map[string]struct {
		opts []latch.IdempotentOption
		want string
	}{
		"the last counts": {[]latch.IdempotentOption{latch.WithName("orders"), latch.WithName("payments")}, "payments"},
		"64 bytes":        {[]latch.IdempotentOption{latch.WithName(longest)}, longest},
		"not named":       {nil, "idempotent"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var events []lock.Event
			var log bytes.Buffer
			l := newLocker(t, memstore.New(), logging(&log),
				lock.WithObserver(func(_ context.Context, e lock.Event) { events = append(events, e) }))
			guard := func(key keyfunc.Func) http.Handler {
				return latch.Idempotent(l, byUser, key, tt.opts...)(http.HandlerFunc(created))
			}
			serve(guard(keyfunc.IdempotencyKey), keyed("k"))
			serve(guard(keyfunc.IdempotencyKey), keyed("k"))
			serve(guard(keyfunc.IdempotencyKey), keyed("")) // with a hint in the log
			serve(guard(keyfunc.Optional(keyfunc.IdempotencyKey)), keyed(""))

			seen := make(map[lock.EventKind]bool)
			for _, e := range events {
				seen[e.Kind] = true
				require.Equal(t, tt.want, e.Name, e.Kind)
			}
			require.Equal(t, map[lock.EventKind]bool{
				lock.EventClaimed: true, lock.EventSettled: true, lock.EventReplayed: true, lock.EventRejected: true, lock.EventSkipped: true,
			}, seen)
			var line struct{ Name string }
			require.NoError(t, json.Unmarshal(log.Bytes(), &line), log.String())
			require.Equal(t, tt.want, line.Name)
		})
	}
}

// The label is made of the guard's own request: a function that reads the body there leaves it to the handler.
func TestLabelsOfBodies(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	l := newLocker(t, memory)
	sku := keyfunc.JSON("/sku")
	label := latch.WithLabel(func(r *http.Request) string {
		text, err := sku(r)
		if err != nil {
			return ""
		}
		return "sku " + text
	})
	var got bytes.Buffer
	h := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, label)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := got.ReadFrom(r.Body)
		require.NoError(t, err)
		w.WriteHeader(http.StatusCreated)
	}))
	require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)
	require.JSONEq(t, `{"sku":"x"}`, got.String())
	for e, err := range memory.List(t.Context()) {
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(e.Owner, "\x1fidempotent\x1fPOST\x1f/orders\x1fsku x"), "%q", e.Owner)
	}
}

const private = "s3cr3t"

// TestNothingPrivateIsShown: keys and bodies of requests are neither in events nor in the names that a store gets.
func TestNothingPrivateIsShown(t *testing.T) {
	t.Parallel()
	var shown []string
	memory := memstore.New()
	store := &stubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		shown = append(shown, key, string(c.Fingerprint))
		return memory.Claim(ctx, key, c)
	}}
	l := newLocker(t, store, patient, lock.WithObserver(func(_ context.Context, e lock.Event) {
		assert.Contains(t, []string{"idempotent", "dedupe"}, e.Name, "a bounded label")
		shown = append(shown, e.Name, e.Key)
	}))
	for range 2 {
		r := keyedBody(private, private)
		r.Header.Set("X-User-ID", private)
		r.URL.Path = "/" + private
		serve(once(l)(http.HandlerFunc(created)), r)
		r.Body = io.NopCloser(strings.NewReader(private))
		serve(latch.Dedupe(l, byUser, time.Hour)(http.HandlerFunc(created)), r)
	}
	require.NotEmpty(t, shown)
	require.NotContains(t, strings.Join(shown, " "), private)
}

// A client chooses the method, or the header that names another one, up to a megabyte. The record does not
// get longer by it, and two long methods are two requests.
func TestLongMethodIsNotKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("M", 64<<10)
	for name, set := range map[string]func(r *http.Request, method string){
		"method": func(r *http.Request, method string) { r.Method = method },
		"header": func(r *http.Request, method string) { r.Header.Set("X-Http-Method-Override", method) },
	} {
		store := memstore.New()
		var e effects
		h := once(newLocker(t, store))(http.HandlerFunc(e.answer))
		for _, method := range []string{long + "A", long + "B", long + "A"} {
			r := keyed("k")
			set(r, method)
			require.Equal(t, http.StatusCreated, serve(h, r).Code, name)
		}
		e.require(t, 2)
		for entry, err := range store.List(t.Context()) {
			require.NoError(t, err)
			require.Less(t, len(entry.Owner), 1<<10, name)
		}
	}
}
