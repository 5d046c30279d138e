package snippets_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

// tenant is what the application knows of the tenant of a request: the host's first label.
var tenant = struct {
	Resolve func(http.Handler) http.Handler
	ID      func(context.Context) string
}{resolveTenant, tenantOf}

type tenantKey struct{}

func resolveTenant(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _, _ := strings.Cut(r.Host, ".")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, id)))
	})
}

func tenantOf(ctx context.Context) string {
	id, _ := ctx.Value(tenantKey{}).(string)
	return id
}

func tenantRoutes(locker *lock.Locker, createOrder http.Handler) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(
		locker, keyfunc.Join(keyfunc.Context(tenant.ID), keyfunc.Context(auth.UserID)), keyfunc.IdempotencyKey,
		latch.WithLabel(tenantAndUser),
	)
	onePerUser := latch.Lock(locker, "user", keyfunc.Join(keyfunc.Context(tenant.ID), keyfunc.Context(auth.UserID)))
	mux.Handle("POST /orders", tenant.Resolve(auth.Require(once(onePerUser(createOrder)))))

	return mux
}

func tenantAndUser(r *http.Request) string { // "acme/42": what operators search for, and erase
	return tenant.ID(r.Context()) + "/" + auth.UserID(r.Context())
}

// order sends one of user 42.
func order(h http.Handler, host, key string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"tea"}`))
	r.Host = host
	r.SetBasicAuth("42", "")
	r.Header.Set("Idempotency-Key", key)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

// Each tenant has a user 42, and clients that begin to count at 1.
func TestTenants(t *testing.T) {
	t.Parallel()
	app := new(application)
	locker := newLocker(t, memstore.New())
	h := tenantRoutes(locker, app.handler(http.StatusCreated))
	for _, host := range []string{"acme.shop.test", "globex.shop.test"} {
		require.False(t, replayed(order(h, host, "1")))
		require.True(t, replayed(order(h, host, "1")))
	}
	require.EqualValues(t, 2, app.effects.Load())

	for label, want := range map[string]int{"42": 0, "acme": 0, "acme/42": 1} {
		erased, _, err := console.Erase(t.Context(), locker, label)
		require.NoError(t, err)
		require.Equal(t, want, erased, label)
	}
	require.False(t, replayed(order(h, "acme.shop.test", "1")), "as if it were new")
	require.True(t, replayed(order(h, "globex.shop.test", "1")))

	leaks := auth.Require(latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)(app.handler(http.StatusCreated)))
	require.False(t, replayed(order(leaks, "acme.shop.test", "1")))
	require.True(t, replayed(order(leaks, "globex.shop.test", "1")), "the answer of another tenant")
}

// What is inside the guard is not asked for a repeat.
func TestAuthorisationAndReplays(t *testing.T) {
	t.Parallel()
	allowed := true
	mayOrder := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed {
				http.Error(w, "not any more", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	createOrder := new(application).handler(http.StatusCreated)
	once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	mux := http.NewServeMux()

	mux.Handle("POST /orders", auth.Require(mayOrder(once(createOrder))))

	inside := auth.Require(once(mayOrder(createOrder)))
	require.Equal(t, http.StatusCreated, order(mux, "", "outside").Code)
	require.Equal(t, http.StatusCreated, order(inside, "", "inside").Code)
	allowed = false
	require.Equal(t, http.StatusForbidden, order(mux, "", "outside").Code)
	require.True(t, replayed(order(inside, "", "inside")))
}

// Two requests that differ in a header only are one, unless it is named.
func TestHeadersAndReplays(t *testing.T) {
	t.Parallel()
	app := new(application)
	locker := newLocker(t, memstore.New())
	guard := func(opts ...latch.IdempotentOption) http.Handler {
		return auth.Require(latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, opts...)(app.handler(http.StatusCreated)))
	}
	require.False(t, replayed(order(guard(), "", "a", "Api-Version", "1")))
	require.True(t, replayed(order(guard(), "", "a", "Api-Version", "2", "Content-Type", "text/plain", "Accept", "text/csv")))

	compared := latch.WithFingerprint(keyfunc.Join(keyfunc.Header("Api-Version"), keyfunc.JSON("/sku")))

	require.False(t, replayed(order(guard(compared), "", "b", "Api-Version", "1")))
	require.True(t, replayed(order(guard(compared), "", "b", "Api-Version", "1")))
	require.Equal(t, http.StatusUnprocessableEntity, order(guard(compared), "", "b", "Api-Version", "2").Code)
	require.EqualValues(t, 2, app.effects.Load())
}
