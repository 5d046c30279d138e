package snippets_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
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

func pay(h http.Handler, secret, key, body string) *httptest.ResponseRecorder {
	return do(h, http.MethodPost, "/v1/payments", body, "Authorization", "Bearer "+secret, "Idempotency-Key", key)
}

// TestStripesRules: the guard of the page has the rules of its table. TestStripe of package middleware has each status.
func TestStripesRules(t *testing.T) {
	t.Parallel()
	runs, status := 0, http.StatusPaymentRequired
	h := paymentRoutes(newLocker(t, memstore.New()), func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(status) })
	const body, other = `{"amount":2000}`, `{"amount":9000}`
	for _, want := range []bool{false, true} {
		kept := pay(h, "sk_live_acme", "k", body)
		require.Equal(t, http.StatusPaymentRequired, kept.Code)
		require.Equal(t, want, replayed(kept))
	}
	require.Contains(t, pay(h, "sk_live_acme", "k", other).Body.String(), "idempotency_error")
	status = http.StatusBadRequest
	require.Equal(t, status, pay(h, "sk_live_acme", "l", body).Code)
	status = http.StatusCreated
	require.Equal(t, status, pay(h, "sk_live_acme", "l", other).Code, "corrected, with the same key")
	for _, secret := range []string{"sk_test_acme", "sk_live_globex", "sk_test_globex"} {
		require.Equal(t, status, pay(h, secret, "k", other).Code, "another account, or mode")
	}
	for range 2 {
		require.Equal(t, status, pay(h, "sk_live_acme", "", body).Code, "without a key")
	}
	require.Equal(t, 1+2+3+2, runs)
}

// A panic is an answer since recovered, inside the guard, makes it one: internal/semantics has the panic that reaches the guard.
func TestPanicsOfPayments(t *testing.T) {
	t.Parallel()
	runs := 0
	h := paymentRoutes(newLocker(t, memstore.New()), func(http.ResponseWriter, *http.Request) { runs++; panic("no memory for the receipt") })
	for range 2 {
		require.Equal(t, http.StatusInternalServerError, pay(h, "sk_live_acme", "k", "{}").Code)
	}
	require.Equal(t, 1, runs)
}

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

func order(h http.Handler, host, key string, header ...string) *httptest.ResponseRecorder {
	return do(h, http.MethodPost, "http://"+host+"/orders", tea, append(header, "Authorization", basic("42"), "Idempotency-Key", key)...)
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
	require.Equal(t, http.StatusCreated, order(mux, "shop.test", "outside").Code)
	require.Equal(t, http.StatusCreated, order(inside, "shop.test", "inside").Code)
	allowed = false
	require.Equal(t, http.StatusForbidden, order(mux, "shop.test", "outside").Code)
	require.True(t, replayed(order(inside, "shop.test", "inside")))
}

// A header that is named makes another request of it.
func TestHeadersAndReplays(t *testing.T) {
	t.Parallel()
	compared := latch.WithFingerprint(keyfunc.Join(keyfunc.Header("Api-Version"), keyfunc.JSON("/sku")))
	once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, compared)
	for version, status := range []int{http.StatusCreated, http.StatusUnprocessableEntity} {
		require.Equal(t, status, order(auth.Require(once(createOrder)), "shop.test", "k", "Api-Version", fmt.Sprint(version)).Code)
	}
}

// aeadOf is AES-256-GCM with one of the secrets of the secret manager, of 32 random bytes.
func aeadOf(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func deployments(store lock.Store, old, next cipher.AEAD) (before, first, second, third *sealed.Store) {
	before = sealed.New(store, old)

	first = sealed.New(store, old, next)  // 1. every process learns to open what comes
	second = sealed.New(store, next, old) // 2. the new one seals
	third = sealed.New(store, next)       // 3. the old one is gone

	return before, first, second, third
}

// Each deployment opens what the one before has sealed. Package sealed tests what is opened, and what is not.
func TestRotation(t *testing.T) {
	t.Parallel()
	old := must.Get(aeadOf(bytes.Repeat([]byte{1}, 32)))(t)
	before, first, second, third := deployments(memstore.New(), old, must.Get(aeadOf(bytes.Repeat([]byte{2}, 32)))(t))
	for key, pair := range map[string][]lock.Store{
		"1": {before, first}, "2": {first, second}, "taken back": {second, first}, "3": {second, third},
	} {
		for i, s := range pair {
			_, replayed, err := newLocker(t, s).Once(t.Context(), key, nil, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
			require.NoError(t, err, key)
			require.Equal(t, i == 1, replayed, key)
		}
	}
	_, _, err := newLocker(t, third).Once(t.Context(), "1", nil, nil)
	require.ErrorContains(t, err, "sealed: no AEAD", "too early")
}

func bothLayers(locker *lock.Locker, scope keyfunc.Func, oldLayer func(http.Handler) http.Handler, createPayment http.Handler) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(locker, scope, keyfunc.Optional(keyfunc.IdempotencyKey), latch.Stripe(), latch.WithFinal(isFinal))

	mux.Handle("POST /v1/payments", api.Authenticate(once(oldLayer(recovered(createPayment)))))
	return mux
}

// isFinal says which answers are kept. The 409 of the old layer means "not yet". latch.Stripe does
// not keep the other statuses below.
func isFinal(status int) bool {
	switch status {
	case http.StatusConflict:
		return false
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return true
}

// keysInATable is the layer that a service has had before: a row for each key, made before the handler runs, and completed
// with its answer.
type keysInATable map[string]*httptest.ResponseRecorder

func (rows keysInATable) layer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := api.Account(r.Context()) + "/" + r.Header.Get("Idempotency-Key")
		answer, known := rows[key]
		switch {
		case !known:
			rows[key], answer = nil, httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			rows[key] = answer
		case answer == nil:
			http.Error(w, "in progress", http.StatusConflict)
			return
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// TestMoveFromATable: processes with the old layer alone, and with the guard outside it,
// serve the same keys, as in a rolling deployment; then the old layer is removed.
func TestMoveFromATable(t *testing.T) {
	t.Parallel()
	runs := 0
	createPayment := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(http.StatusCreated) })
	scope := keyfunc.Join(keyfunc.Context(api.Account), keyfunc.Context(api.Mode))
	rows := keysInATable{}
	old := rows.layer
	locker := newLocker(t, memstore.New())
	before := api.Authenticate(old(createPayment))
	both := bothLayers(locker, scope, old, createPayment)
	after := paymentRoutes(locker, createPayment)

	send := func(h http.Handler, key string, status int, replayed string) {
		t.Helper()
		w := pay(h, "sk_live_acme", key, "{}")
		require.Equal(t, status, w.Code, w.Body)
		require.Equal(t, replayed, w.Header().Get("Idempotent-Replayed"))
	}
	send(before, "a", 201, "")
	send(both, "a", 201, "")     // by the table
	send(both, "a", 201, "true") // by the guard
	send(both, "b", 201, "")
	send(before, "b", 201, "")
	require.Equal(t, 2, runs)

	rows["acme/c"] = nil // a process with the old layer runs it
	send(both, "c", 409, "")
	kept := api.Authenticate(latch.Idempotent(newLocker(t, memstore.New()), scope, keyfunc.IdempotencyKey)(old(createPayment)))
	send(kept, "c", 409, "")
	rows["acme/c"] = &httptest.ResponseRecorder{Code: http.StatusCreated, Body: new(bytes.Buffer)}
	send(both, "c", 201, "")
	send(kept, "c", 409, "true") // what WithFinal is for

	for _, key := range []string{"a", "b", "c"} {
		send(after, key, 201, "true")
	}
	require.Equal(t, 2, runs)
}
