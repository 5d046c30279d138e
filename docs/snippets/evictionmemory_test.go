package snippets_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestFullEmbeddedStore is the table of the embedded store on the page: user 42 uses
// up its share, or, where there is none, the store.
func TestFullEmbeddedStore(t *testing.T) {
	t.Parallel()
	limits := memstore.WithLimits(1000, 1<<20)
	for name, tt := range map[string]struct {
		store  lock.Store
		others int // status of a submission of another user
	}{
		"a scope's share": {memstore.New(limits), 201},
		"the store":       {memstore.New(limits, memstore.WithScopeShare(1)), 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker := newLocker(t, tt.store, lock.WithLogger(slog.New(slog.DiscardHandler)))
			size := 100
			meanwhile := func() {}
			h := chain(func(w http.ResponseWriter, _ *http.Request) {
				size := size
				meanwhile()
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write(make([]byte, size))
			}, auth.Require, latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey))
			onlyLocked := chain(func(http.ResponseWriter, *http.Request) {}, auth.Require,
				latch.Lock(locker, "user", keyfunc.Context(auth.UserID)))

			require.Equal(t, 201, ask(h, "POST", "/orders", "kept").Code)
			require.Equal(t, "true", ask(h, "POST", "/orders", "kept").Header().Get("Idempotent-Replayed"))
			fill := func() {
				size = 100
				for i := range 10_000 {
					if w := ask(h, "POST", "/orders", fmt.Sprint("fill", i)); w.Code != 201 {
						require.Equal(t, 503, w.Code)
						require.Contains(t, w.Body.String(), "#unavailable")
						return
					}
				}
				t.Fatal("it does not become full")
			}
			// One that runs while the store becomes full.
			meanwhile = func() { meanwhile = func() {}; fill() }
			size = 900
			require.Equal(t, 201, ask(h, "POST", "/orders", "short").Code)
			require.Equal(t, "true", ask(h, "POST", "/orders", "short").Header().Get("Idempotent-Replayed"))
			require.Equal(t, "true", ask(h, "POST", "/orders", "kept").Header().Get("Idempotent-Replayed"))

			require.Equal(t, tt.others, askAs(h, "43", "k").Code)
			if tt.others == 201 {
				require.Equal(t, 200, ask(onlyLocked, "POST", "/orders", "").Code)
			}
		})
	}
}

// One bucket for all may use all of it.
func TestEmbeddedStoreOfOneScope(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.WithLimits(200_000, 1<<30), memstore.WithScopeShare(1))

	c := lock.Claim{Token: "t", Scope: "*", Lease: time.Hour}
	for i := range 200_000 {
		if _, err := store.Claim(t.Context(), fmt.Sprint(i), c); err != nil {
			t.Fatal(i, err)
		}
	}
	_, err := store.Claim(t.Context(), "more", c)
	require.ErrorIs(t, err, lock.ErrFull)
}

func askAs(h http.Handler, user, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"tea"}`))
	r.SetBasicAuth(user, "")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
