package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

var quiet = slog.New(slog.DiscardHandler)

// patient is for stores that may be late, in tests whose time is the machine's: one
// that is busy answers within it too.
var patient = lock.WithBudget(10 * time.Second)

var byUser = keyfunc.Header("X-User-ID")

// newLocker returns a Locker that is closed, in good order, when t ends.
func newLocker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, opts...)
	t.Cleanup(func() { requireCloses(t, l) })
	return l
}

// requireCloses checks that nothing is left of what l did.
func requireCloses(t *testing.T, l *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, l.Close(ctx))
}

// requireFree checks that key can be taken now.
func requireFree(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
}

// stubStore is a store whose Claim can be replaced. Unlike the memory store
// itself it counts as one that may block and lose answers.
type stubStore struct {
	lock.Store
	claim func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error)
}

func (s *stubStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if s.claim != nil {
		return s.claim(ctx, key, c)
	}
	return s.Store.Claim(ctx, key, c)
}

func post(user string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"x"}`))
	if user != "" {
		r.Header.Set("X-User-ID", user)
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

func mustNotRun(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }
}

// wantProblem is what a refusal must look like, absent headers included.
type wantProblem struct {
	status     int
	kind       string // last part of the type; "": no type
	retryAfter string // "": must be absent
	connection string // "": must be absent
}

func requireProblem(t *testing.T, want wantProblem, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, want.status, w.Code)
	require.Equal(t, []string{"application/problem+json"}, w.Header().Values("Content-Type"))
	require.Equal(t, []string{"no-store"}, w.Header().Values("Cache-Control"))
	require.Equal(t, want.retryAfter, w.Header().Get("Retry-After"))
	require.Equal(t, want.connection, w.Header().Get("Connection"))
	for name := range w.Header() {
		require.Contains(t, []string{"Content-Type", "Cache-Control", "Retry-After", "Connection"}, name)
	}

	var body map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
	members := 2
	if want.kind != "" {
		members++
		require.Equal(t, "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"+want.kind, body["type"])
	}
	require.Len(t, body, members)
	require.EqualValues(t, want.status, body["status"])
	require.NotEmpty(t, body["title"])
}

// mortalStore is a memory store as seen by a process that dies: from then on
// none of its commands arrives.
type mortalStore struct {
	lock.Store
	dead atomic.Bool
}

var errDead = fmt.Errorf("%w: this process is dead", lock.ErrNotApplied)

func (s *mortalStore) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.dead.Load() {
		return false, errDead
	}
	return s.Store.Renew(ctx, key, c)
}

func (s *mortalStore) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	if s.dead.Load() {
		return false, errDead
	}
	return s.Store.Settle(ctx, key, token, receipt, keep)
}

func (s *mortalStore) Release(ctx context.Context, key, token string) (bool, error) {
	if s.dead.Load() {
		return false, errDead
	}
	return s.Store.Release(ctx, key, token)
}
