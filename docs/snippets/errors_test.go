package snippets_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// errorBody is how all errors of this API look.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Retry   bool   `json:"retry"`
}

func writeRefusal(w http.ResponseWriter, _ *http.Request, p *latch.Problem) {
	answer := errorBody{Code: "SERVER_ERROR", Message: p.Title}
	switch p.Kind() {
	case latch.ProblemInProgress, latch.ProblemUnavailable, latch.ProblemShuttingDown, latch.ProblemFirstFailed, latch.ProblemUnconfirmed:
		answer.Code, answer.Retry = "TRY_AGAIN", true
	case latch.ProblemHeld, latch.ProblemCoolingDown:
		answer.Code = "DUPLICATE"
	case latch.ProblemKeyMissing, latch.ProblemKeyInvalid:
		answer.Code, answer.Message = "BAD_KEY", cmp.Or(p.Detail, p.Title)
	case latch.ProblemKeyReused:
		answer.Code = "KEY_REUSED"
	case latch.ProblemOutcomeUnknown, latch.ProblemResultNotReplayable:
		answer.Code = "CHECK_YOUR_ORDERS" // it may be there, or is: never send it again unseen
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.Status)
	if err := json.NewEncoder(w).Encode(map[string]errorBody{"error": answer}); err != nil {
		slog.Debug("the client has gone", "error", err)
	}
}

func errorRoutes(locker *lock.Locker) http.Handler {
	ours := latch.With(latch.WithErrorHandler(writeRefusal)) // and what else all routes have in common
	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, ours)
	onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID), ours)
	return auth.Require(once(onePerUser(createOrder)))
}

func redeem(locker *lock.Locker, coupon func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := locker.Do(r.Context(), lock.Key("coupon", r.PathValue("code")), coupon)
		if p := latch.ProblemOf(err); p != nil {
			p.Respond(w, r, writeRefusal)
			return
		}
		if err != nil {
			http.Error(w, "coupons do not work at the moment", http.StatusInternalServerError)
		}
	}
}

// TestRefusalOfAHandlerInItsOwnFormat is not kept, and the next try runs.
func TestRefusalOfAHandlerInItsOwnFormat(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	redeemed := 0
	h := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)(redeem(l, func(context.Context) error { redeemed++; return nil }))
	lease, err := l.Acquire(t.Context(), lock.Key("coupon", ""))
	require.NoError(t, err)
	for range 2 {
		w := ask(h, "POST", "/coupons/7/redeem", "k")
		require.Equal(t, 409, w.Code)
		require.Contains(t, w.Body.String(), "DUPLICATE")
		require.Empty(t, w.Header().Get("Idempotent-Replayed"))
	}
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, 200, ask(h, "POST", "/coupons/7/redeem", "k").Code)
	require.Equal(t, 1, redeemed)
}

// TestOwnErrors: the format is the application's, status and headers are the guard's.
func TestOwnErrors(t *testing.T) {
	t.Parallel()
	h := errorRoutes(newLocker(t, memstore.New()))
	require.Equal(t, 201, ask(h, "POST", "/orders", "k").Code)
	for key, tt := range map[string]struct {
		status int
		want   string
	}{
		"":    {400, `{"error":{"code":"BAD_KEY","message":"The header Idempotency-Key is missing.","retry":false}}`},
		"a,b": {400, `{"error":{"code":"BAD_KEY","message":"The header Idempotency-Key is neither one string of RFC 8941 nor one bare key; send a UUID, say.","retry":false}}`},
	} {
		name := "key " + key
		w := ask(h, "POST", "/orders", key)
		require.Equal(t, tt.status, w.Code, name)
		require.JSONEq(t, tt.want, w.Body.String(), name)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), name)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"), name)
	}
}
