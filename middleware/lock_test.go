package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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

const secret = "a text that only logs may show"

// TestLockSpec drives every refusal. Each row starts from a fresh store.
func TestLockSpec(t *testing.T) {
	t.Parallel()
	fails := func(err error) keyfunc.Func {
		return func(*http.Request) (string, error) { return "", err }
	}
	answers := func(entry lock.Entry, err error) *stubStore {
		return &stubStore{Store: memstore.New(), OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
			return entry, err
		}}
	}
	unavailable := wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}

	tests := []struct {
		name    string
		store   lock.Store // memory unless set
		prepare func(tb testing.TB, l *lock.Locker)
		key     keyfunc.Func // X-User-ID, which is 42, unless set
		opts    []latch.LockOption
		want    wantProblem
	}{
		{
			name: "held", prepare: hold,
			want: wantProblem{status: 409, kind: "held", retryAfter: "1"},
		},
		{
			name: "held, 423", prepare: hold, opts: []latch.LockOption{latch.WithContentionStatus(423)},
			want: wantProblem{status: 423, kind: "held", retryAfter: "1"},
		},
		{
			name: "held, 425", prepare: hold, opts: []latch.LockOption{latch.WithContentionStatus(425)},
			want: wantProblem{status: 425, kind: "held", retryAfter: "1"},
		},
		{
			name: "held, 429", prepare: hold, opts: []latch.LockOption{latch.WithContentionStatus(429)},
			want: wantProblem{status: 429, kind: "held", retryAfter: "1"},
		},
		{
			name: "held by a process with a long lease", store: answers(lock.Entry{State: lock.Held, Token: "t", Left: 30 * time.Second}, nil),
			want: wantProblem{status: 409, kind: "held", retryAfter: "1"},
		},
		{
			name: "abandoned", store: answers(lock.Entry{State: lock.Abandoned, Token: "t", Left: time.Hour}, nil),
			want: wantProblem{status: 409, kind: "held", retryAfter: "1"},
		},
		{
			name: "held although failing open is allowed", prepare: hold, opts: []latch.LockOption{latch.WithFailOpen()},
			want: wantProblem{status: 409, kind: "held", retryAfter: "1"},
		},
		{
			name: "cooling down", store: answers(lock.Entry{State: lock.Settled, Token: "t", Left: 2001 * time.Millisecond}, nil),
			want: wantProblem{status: 429, kind: "cooling-down", retryAfter: "3"},
		},
		{
			name: "cooling down for whole seconds", store: answers(lock.Entry{State: lock.Settled, Token: "t", Left: 2 * time.Second}, nil),
			want: wantProblem{status: 429, kind: "cooling-down", retryAfter: "2"},
		},
		{
			name: "cooling down for a moment more", store: answers(lock.Entry{State: lock.Settled, Token: "t", Left: time.Millisecond}, nil),
			want: wantProblem{status: 429, kind: "cooling-down", retryAfter: "1"},
		},
		{
			name: "cooling down, time left not known", store: answers(lock.Entry{State: lock.Settled, Token: "t"}, nil),
			opts: []latch.LockOption{latch.WithContentionStatus(423)},
			want: wantProblem{status: 429, kind: "cooling-down", retryAfter: "1"},
		},
		{
			name: "no header", key: keyfunc.Header("X-Absent"),
			want: wantProblem{status: 400, kind: "key-missing"},
		},
		{
			name: "empty key without error", key: func(*http.Request) (string, error) { return "", nil },
			want: wantProblem{status: 400, kind: "key-missing"},
		},
		{
			name: "empty key, failing open", key: func(*http.Request) (string, error) { return "", nil },
			opts: []latch.LockOption{latch.WithFailOpen()},
			want: wantProblem{status: 400, kind: "key-missing"},
		},
		{
			name: "key of 1 KiB and one byte", key: func(*http.Request) (string, error) {
				return strings.Repeat("k", keytext.MaxBytes-len("user=")+1), nil
			},
			want: wantProblem{status: 400, kind: "key-invalid"},
		},
		{
			name: "plain error of the key function", key: fails(errors.New(secret)),
			want: wantProblem{status: 500, kind: "key-failed"},
		},
		{
			name: "key function says 400", key: fails(&keyfunc.Error{Status: 400, Err: errors.New(secret)}),
			want: wantProblem{status: 400, kind: "key-invalid"},
		},
		{
			name: "key function says 401", key: fails(&keyfunc.Error{Status: 401, Err: errors.New(secret)}),
			want: wantProblem{status: 401, kind: "unauthenticated"},
		},
		{
			name: "key function says 413", key: fails(&keyfunc.Error{Status: 413, Err: errors.New(secret)}),
			want: wantProblem{status: 413, kind: "body-too-large"},
		},
		{
			name: "key function says 403", key: fails(&keyfunc.Error{Status: 403, Err: errors.New(secret)}),
			want: wantProblem{status: 403},
		},
		{
			name: "key function says 200", key: fails(&keyfunc.Error{Status: 200, Err: errors.New(secret)}),
			want: wantProblem{status: 400, kind: "key-invalid"},
		},
		{
			name: "store certainly did nothing", store: answers(lock.Entry{}, lock.ErrNotApplied), want: unavailable,
		},
		{
			name: "outcome unknown", store: answers(lock.Entry{}, errors.New(secret)), want: unavailable,
		},
		{
			name: "store full", store: answers(lock.Entry{}, lock.ErrFull), want: unavailable,
		},
		{
			name: "store cannot fence", store: answers(lock.Entry{}, errors.ErrUnsupported), opts: []latch.LockOption{latch.WithFailOpen()},
			want: unavailable,
		},
		{
			name: "locker closed", prepare: requireCloses,
			want: wantProblem{status: 503, kind: "shutting-down", retryAfter: "1", connection: "close"},
		},
		{
			name: "locker closed, failing open", prepare: requireCloses, opts: []latch.LockOption{latch.WithFailOpen()},
			want: wantProblem{status: 503, kind: "shutting-down", retryAfter: "1", connection: "close"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := tt.store
				if store == nil {
					store = memstore.New()
				}
				l := lock.New(store)
				t.Cleanup(func() { end(l) })
				if tt.prepare != nil {
					tt.prepare(t, l)
				}
				key := tt.key
				if key == nil {
					key = byUser
				}
				w := serve(latch.Lock(l, "user", key, tt.opts...)(mustNotRun(t)), post("42"))
				requireProblem(t, tt.want, w)
				require.NotContains(t, w.Body.String(), secret)
			})
		})
	}
}

// hold takes the key of user 42 until the test ends.
func hold(tb testing.TB, l *lock.Locker) {
	tb.Helper()
	lease, err := l.Acquire(tb.Context(), lock.Key("user", "42"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, lease.Release(context.Background())) })
}

func TestLockRunsTheHandler(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var held bool
	h := latch.Lock(l, "user", byUser)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, ok := lock.FromContext(r.Context())
		held = ok && lease != nil
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	}))

	w := serve(h, post("42"))
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "done", w.Body.String())
	require.Equal(t, http.Header{"Location": {"/orders/1"}}, w.Header())
	require.True(t, held, "lock.FromContext finds the lease")
	requireFree(t, l, lock.Key("user", "42"))
}

func TestSafeMethodsPass(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var seen *http.Request
	h := latch.Lock(l, "user", byUser)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r }))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY", "PROPFIND", "REPORT", "SEARCH"} {
		r := httptest.NewRequest(method, "/orders", nil)
		serve(h, r)
		require.Same(t, r, seen, method)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "get", "PURGE"} {
		seen = nil
		w := serve(h, httptest.NewRequest(method, "/orders", nil))
		require.Equal(t, http.StatusBadRequest, w.Code, method)
		require.Nil(t, seen, method)
	}
}

func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	hold(t, l) // user=42
	byPair := keyfunc.Join(keyfunc.Header("X-A"), keyfunc.Header("X-B"))
	tests := []struct {
		name  string
		guard func(http.Handler) http.Handler
		set   map[string]string
		want  int
	}{
		{"same name, same value", latch.Lock(l, "user", byUser), map[string]string{"X-User-ID": "42"}, 409},
		{"same name, other value", latch.Lock(l, "user", byUser), map[string]string{"X-User-ID": "43"}, 201},
		{"other name, same value", latch.Lock(l, "order", byUser), map[string]string{"X-User-ID": "42"}, 201},
		{"value that looks like two", latch.Lock(l, "user", byUser), map[string]string{"X-User-ID": "42&"}, 201},
		{"two values", latch.Lock(l, "user", byPair), map[string]string{"X-A": "4", "X-B": "2"}, 201},
	}
	for _, tt := range tests {
		r := post("")
		for name, value := range tt.set {
			r.Header.Set(name, value)
		}
		require.Equal(t, tt.want, serve(tt.guard(http.HandlerFunc(created)), r).Code, tt.name)
	}
}

func TestRouteAndWorkerExcludeEachOther(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	ctx := t.Context()
	var worker error
	h := latch.Lock(l, "user", byUser)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		worker = l.Do(ctx, lock.Key("user", r.Header.Get("X-User-ID")), func(context.Context) error { return nil })
		w.WriteHeader(http.StatusCreated)
	}))
	require.Equal(t, http.StatusCreated, serve(h, post("42")).Code)
	require.ErrorIs(t, worker, lock.ErrHeld, "a worker meets the route's lock")

	require.NoError(t, l.Do(ctx, lock.Key("user", "42"), func(context.Context) error {
		require.Equal(t, http.StatusConflict, serve(h, post("42")).Code, "a request meets the worker's lock")
		return nil
	}))
	require.Equal(t, http.StatusCreated, serve(h, post("42")).Code)
}

func TestSkippedRequestsRunUnguarded(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	hold(t, l)
	for name, key := range map[string]keyfunc.Func{
		"by a wrapped ErrSkip": func(*http.Request) (string, error) { return "42", errors.Join(errors.New("batch"), keyfunc.ErrSkip) },
		"by Optional":          keyfunc.Optional(keyfunc.Header("X-Absent")),
	} {
		ran := false
		serve(latch.Lock(l, "user", key)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, ok := lock.FromContext(r.Context())
			require.False(t, ok, name)
			ran = true
		})), post("42"))
		require.True(t, ran, name)
	}
}

func TestKeyFunctionOwnsItsRequest(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	fromBody := func(r *http.Request) (string, error) {
		b, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(b))
		return string(b), err
	}
	for name, key := range map[string]keyfunc.Func{
		"guarded": fromBody,
		"skipped": func(r *http.Request) (string, error) {
			if _, err := fromBody(r); err != nil {
				return "", err
			}
			return "", keyfunc.ErrSkip
		},
	} {
		var got string
		r := post("42")
		body := r.Body
		serve(latch.Lock(l, "body", key)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			got = string(b)
		})), r)
		require.Equal(t, `{"sku":"x"}`, got, name)
		require.Equal(t, body, r.Body, "%s: the caller's request is unchanged", name)
	}
}

func TestLostLeaseEndsTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := newLocker(t, store, lock.WithLease(30*time.Second))
		var cause error
		h := latch.Lock(l, "user", byUser)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			operatorFrees(t, store)
			<-r.Context().Done()
			cause = context.Cause(r.Context())
		}))
		began := time.Now()
		serve(h, post("42"))
		require.ErrorIs(t, cause, lock.ErrLost)
		require.LessOrEqual(t, time.Since(began), 30*time.Second)
		requireFree(t, l, lock.Key("user", "42"))
	})
}

// operatorFrees removes all entries of store.
func operatorFrees(t *testing.T, store lock.Store) {
	t.Helper()
	inspector, ok := store.(lock.Inspector)
	require.True(t, ok)
	n := 0
	for e, err := range inspector.List(t.Context()) {
		require.NoError(t, err)
		freed, err := inspector.Forget(t.Context(), e.Key, e.Token)
		require.NoError(t, err)
		require.True(t, freed)
		n++
	}
	require.NotZero(t, n)
}

func TestGuardServesManyHandlers(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	guard := latch.Lock(l, "user", byUser)
	inner := guard(http.HandlerFunc(created))
	outer := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { inner.ServeHTTP(w, post("42")) }))
	require.Equal(t, http.StatusConflict, serve(outer, post("42")).Code, "two routes with one guard exclude each other")
	require.Equal(t, http.StatusCreated, serve(inner, post("42")).Code)
}
