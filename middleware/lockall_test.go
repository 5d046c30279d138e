package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var bySKU = keyfunc.Each("/items/*/sku")

// cart is a submission of these items.
func cart(skus ...string) *http.Request {
	items := make([]string, len(skus))
	for i, sku := range skus {
		items[i] = `{"sku":"` + sku + `"}`
	}
	r := httptest.NewRequest(http.MethodPost, "/carts", strings.NewReader(`{"items":[`+strings.Join(items, ",")+`]}`))
	r.Header.Set("X-User-ID", "42")
	return r
}

// The handler runs while all keys are held, and none of them is held after it.
func TestLockAllHoldsAllKeys(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.LockAll(l, "item", bySKU)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set, ok := lock.SetFromContext(r.Context())
		require.True(t, ok)
		require.Equal(t, []string{"item=a", "item=b"}, set.Keys())
		for _, key := range set.Keys() {
			require.ErrorIs(t, l.Do(r.Context(), key, nil), lock.ErrHeld)
		}
		other := latch.LockAll(l, "item", bySKU)(mustNotRun(t))
		requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(other, cart("c", "b")))
		requireFree(t, l, "item=c")
		created(w, r)
	}))
	require.Equal(t, http.StatusCreated, serve(h, cart("b", "a", "b")).Code)
	requireFree(t, l, "item=a")
	requireFree(t, l, "item=b")
}

func TestLockAllSpec(t *testing.T) {
	t.Parallel()
	values := func(keys []string, err error) keyfunc.Set {
		return func(*http.Request) ([]string, error) { return keys, err }
	}
	for name, tt := range map[string]struct {
		keys keyfunc.Set
		opts []latch.LockOption
		want wantProblem
	}{
		"one is held":               {values([]string{"a", "held"}, nil), nil, wantProblem{status: 409, kind: "held", retryAfter: "1"}},
		"one is held, 423":          {values([]string{"a", "held"}, nil), []latch.LockOption{latch.WithContentionStatus(423)}, wantProblem{status: 423, kind: "held", retryAfter: "1"}},
		"one cools down":            {values([]string{"a", "cools"}, nil), nil, wantProblem{status: 429, kind: "cooling-down", retryAfter: "5"}},
		"no keys":                   {values(nil, nil), nil, wantProblem{status: 400, kind: "key-missing"}},
		"an empty key":              {values([]string{"a", ""}, nil), nil, wantProblem{status: 400, kind: "key-missing"}},
		"no items in the body":      {bySKU, nil, wantProblem{status: 400, kind: "key-missing"}},
		"a long key":                {values([]string{"a", strings.Repeat("k", keytext.MaxBytes)}, nil), nil, wantProblem{status: 400, kind: "key-invalid"}},
		"an error of the function":  {values(nil, context.Canceled), nil, wantProblem{status: 500, kind: "key-failed"}},
		"the function says 401":     {values(nil, &keyfunc.Error{Status: 401}), nil, wantProblem{status: 401, kind: "unauthenticated"}},
		"a body over the limit":     {values([]string{"a"}, nil), []latch.LockOption{latch.WithBodyFirst(3)}, wantProblem{status: 413, kind: "body-too-large"}},
		"keys in too large a body":  {bySKU, []latch.LockOption{latch.WithBodyFirst(3)}, wantProblem{status: 413, kind: "body-too-large"}},
		"store out, other key held": {values([]string{"held", "a"}, nil), []latch.LockOption{latch.WithFailOpen()}, wantProblem{status: 409, kind: "held", retryAfter: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
				held, err := l.Acquire(t.Context(), "item=held")
				require.NoError(t, err)
				cools, err := l.Acquire(t.Context(), "item=cools")
				require.NoError(t, err)
				require.NoError(t, cools.Settle(t.Context(), nil, 5*time.Second))
				requireProblem(t, tt.want, serve(latch.LockAll(l, "item", tt.keys, tt.opts...)(mustNotRun(t)), cart()))
				requireFree(t, l, "item=a")
				require.NoError(t, held.Release(t.Context()))
			})
		})
	}
}

// A skip runs without a guard, and so does GET.
func TestLockAllRunsUnguarded(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	runs := 0
	h := latch.LockAll(l, "item", func(*http.Request) ([]string, error) { return nil, keyfunc.ErrSkip })(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, ok := lock.SetFromContext(r.Context())
			require.False(t, ok)
			runs++
		}))
	serve(h, cart("a"))
	serve(h, httptest.NewRequest(http.MethodGet, "/carts", nil))
	require.Equal(t, 2, runs)
}

// A cool-down after success is for all keys, and a failure has none.
func TestLockAllCooldown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memstore.New())
		code := http.StatusBadRequest
		h := latch.LockAll(l, "item", bySKU, latch.WithCooldown(3*time.Second))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
		}))
		require.Equal(t, code, serve(h, cart("a", "b")).Code)
		code = http.StatusCreated
		require.Equal(t, code, serve(h, cart("a", "b")).Code)
		for _, sku := range []string{"a", "b"} {
			requireProblem(t, wantProblem{status: 429, kind: "cooling-down", retryAfter: "3"}, serve(h, cart(sku, "c")))
		}
		requireFree(t, l, "item=c")
		time.Sleep(3 * time.Second)
		require.Equal(t, code, serve(h, cart("a", "b")).Code)
	})
}

// Keys that a guard further out has are not claimed again.
func TestLockAllInsideOtherGuards(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
	first := latch.Lock(l, "item", keyfunc.JSON("/items/0/sku"))
	set := latch.LockAll(l, "item", bySKU)
	runs := 0
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		runs++
		for _, key := range []string{"item=a", "item=b"} {
			require.ErrorIs(t, l.Do(r.Context(), key, nil), lock.ErrHeld)
		}
	})
	for name, guarded := range map[string]http.Handler{
		"Lock around LockAll": first(set(h)), "LockAll around Lock": set(first(h)), "LockAll twice": set(set(h)),
	} {
		runs = 0
		require.Equal(t, http.StatusOK, serve(guarded, cart("a", "b")).Code, name)
		require.Equal(t, 1, runs, name)
		requireFree(t, l, "item=a")
		requireFree(t, l, "item=b")
	}
}

// Without the store the handler runs, and knows that nothing protects it.
func TestLockAllFailsOpen(t *testing.T) {
	t.Parallel()
	down := &stubStore{Store: memstore.New(), OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return lock.Entry{}, lock.ErrNotApplied
	}}
	l := newLocker(t, down, lock.WithLogger(quiet))
	runs := 0
	h := latch.LockAll(l, "item", bySKU, latch.WithFailOpen())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		runs++
		_, ok := lock.SetFromContext(r.Context())
		require.False(t, ok)
	}))
	require.Equal(t, http.StatusOK, serve(h, cart("a", "b")).Code)
	require.Equal(t, 1, runs)
	requireProblem(t, wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}, serve(latch.LockAll(l, "item", bySKU)(mustNotRun(t)), cart("a", "b")))
}

// A panic releases all keys.
func TestLockAllReleasesAfterAPanic(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.LockAll(l, "item", bySKU)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("handler") }))
	require.PanicsWithValue(t, "handler", func() { serve(h, cart("a", "b")) })
	requireFree(t, l, "item=a")
	requireFree(t, l, "item=b")
}
