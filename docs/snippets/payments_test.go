package snippets_test

import (
	"context"
	"log/slog"
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

// api is the authentication of the payments API that payments.md is about. Its keys look
// like Stripe's: "sk_test_acme" is that of the account acme, in test mode.
var api = struct {
	Authenticate  func(http.Handler) http.Handler
	Account, Mode func(context.Context) string
}{authenticateAccount, accountOf, modeOf}

type apiKey struct{}

func authenticateAccount(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer sk_")
		if !ok {
			http.Error(w, "no API key", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), apiKey{}, key)))
	})
}

func accountOf(ctx context.Context) string {
	key, _ := ctx.Value(apiKey{}).(string)
	_, account, _ := strings.Cut(key, "_")
	return account
}

func modeOf(ctx context.Context) string {
	key, _ := ctx.Value(apiKey{}).(string)
	mode, _, _ := strings.Cut(key, "_")
	return mode
}

func paymentRoutes(locker *lock.Locker, createPayment http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()

	scope := keyfunc.Join(keyfunc.Context(api.Account), keyfunc.Context(api.Mode)) // "acme", "live" or "test"
	once := latch.Idempotent(locker, scope, keyfunc.Optional(keyfunc.IdempotencyKey), latch.Stripe())

	mux.Handle("POST /v1/payments", api.Authenticate(once(recovered(createPayment))))
	return mux
}

// recovered turns a panic into an answer, which is kept. A panic that reaches the guard is none.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				slog.ErrorContext(r.Context(), "the handler panicked", "panic", v)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// pay sends a payment with the secret key of an account.
func pay(h http.Handler, secret, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/payments", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+secret)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestStripesRules are the rows of the page's table, and what its guard makes of them.
func TestStripesRules(t *testing.T) {
	t.Parallel()
	runs, status := 0, http.StatusCreated
	var during func()
	h := paymentRoutes(newLocker(t, memstore.New(), lock.WithWait(0)), func(w http.ResponseWriter, _ *http.Request) {
		runs++
		if during != nil {
			during()
		}
		w.WriteHeader(status)
	})
	const body, other = `{"amount":2000}`, `{"amount":9000}`

	for _, kept := range []int{201, 402, 404, 500, 503} {
		runs, status = 0, kept
		key := http.StatusText(kept)[:2]
		require.Equal(t, kept, pay(h, "sk_live_acme", key, body).Code)
		status = http.StatusCreated
		again := pay(h, "sk_live_acme", key, body)
		require.Equal(t, kept, again.Code)
		require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
		require.Equal(t, 1, runs, kept)
	}
	for _, notKept := range []int{400, 401, 403, 429} {
		runs, status = 0, notKept
		key := "n" + http.StatusText(notKept)[:2]
		require.Equal(t, notKept, pay(h, "sk_live_acme", key, body).Code)
		status = http.StatusCreated
		require.Equal(t, http.StatusCreated, pay(h, "sk_live_acme", key, other).Code, "corrected, with the same key")
		require.Equal(t, 2, runs, notKept)
	}

	reused := pay(h, "sk_live_acme", "Cr", other)
	require.Equal(t, http.StatusBadRequest, reused.Code)
	require.JSONEq(t, `{"error": {"type": "idempotency_error", "code": "key_reused",
		"message": "The key was used for a different request."}}`, reused.Body.String())

	runs = 0
	for _, secret := range []string{"sk_test_acme", "sk_live_globex", "sk_test_globex"} {
		require.Equal(t, http.StatusCreated, pay(h, secret, "Cr", other).Code, "another account, or mode")
	}
	for range 2 {
		require.Equal(t, http.StatusCreated, pay(h, "sk_live_acme", "", body).Code, "without a key")
	}
	require.Equal(t, 5, runs)

	var meanwhile *httptest.ResponseRecorder
	during = func() { during = nil; meanwhile = pay(h, "sk_live_acme", "twice", body) }
	require.Equal(t, http.StatusCreated, pay(h, "sk_live_acme", "twice", body).Code)
	require.Equal(t, http.StatusConflict, meanwhile.Code)
	require.Contains(t, meanwhile.Body.String(), `"code":"idempotency_key_in_use"`)
	require.Equal(t, "1", meanwhile.Header().Get("Retry-After"))
}

// A panic is an answer only if something inside the guard makes it one.
func TestPanicsOfPayments(t *testing.T) {
	t.Parallel()
	runs := 0
	fails := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++; panic("no memory for the receipt") })
	h := paymentRoutes(newLocker(t, memstore.New()), fails)
	for range 2 {
		require.Equal(t, http.StatusInternalServerError, pay(h, "sk_live_acme", "k", "{}").Code)
	}
	require.Equal(t, 1, runs)

	bare := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey, latch.Stripe())(fails)
	for range 2 {
		require.Panics(t, func() { pay(bare, "sk_live_acme", "k", "{}") })
	}
	require.Equal(t, 3, runs)
}

// tenant returns the tenant of a request: the first label of the host.
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
