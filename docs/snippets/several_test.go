package snippets_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// several mounts the guards of docs/several.md.
func several(locker *lock.Locker, placeCart, export func(http.ResponseWriter, *http.Request)) http.Handler {
	mux := http.NewServeMux()
	perItem := latch.LockAll(locker, "item", keyfunc.Each("/items/*/sku"))
	mux.Handle("POST /carts", perItem(http.HandlerFunc(placeCart)))
	mux.Handle("POST /orders", orderTogether(locker))
	threeExports := latch.Lock(locker, "export", keyfunc.Header("X-Tenant"), latch.WithPermits(3), latch.WithContentionStatus(429))
	mux.Handle("POST /exports", threeExports(http.HandlerFunc(export)))
	return mux
}

var errSoldOut = errors.New("shop: sold out")

func buy(ctx context.Context, keys []string) error {
	set, ok := lock.SetFromContext(ctx)
	if !ok || len(set.Keys()) != len(keys) || slices.Contains(keys, "item=sold out") {
		return errSoldOut
	}
	return nil
}

// cartKeys returns a key for the user and for each item, and one for the coupon if there is one.
func cartKeys(r *http.Request) (keys []string, err error) {
	skus, err := keyfunc.Each("/items/*/sku")(r)
	if err != nil {
		return nil, err
	}
	keys = append(keys, lock.Key("user", r.Header.Get("X-User-ID")))
	for _, sku := range skus {
		keys = append(keys, lock.Key("item", sku))
	}
	coupon, err := keyfunc.Optional(keyfunc.JSON("/coupon"))(r)
	if errors.Is(err, keyfunc.ErrSkip) {
		return keys, nil // without a coupon there is no key: all such carts would share it
	}
	return append(keys, lock.Key("coupon", coupon)), err
}

func orderTogether(locker *lock.Locker) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		keys, err := cartKeys(r)
		if err == nil {
			err = locker.DoAll(r.Context(), keys, func(ctx context.Context) error {
				return buy(ctx, keys)
			})
		}
		switch p := latch.ProblemOf(err); {
		case p != nil:
			p.ServeHTTP(w, r)
		case err != nil: // of buy
			http.Error(w, "nothing was bought", http.StatusUnprocessableEntity)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	}
}

func exportAll(context.Context, string) error { return nil }

func nightly(ctx context.Context, locker *lock.Locker, tenant string) error {
	return locker.DoAny(ctx, lock.Slots("export", 3, tenant), func(ctx context.Context, _ string) error {
		return exportAll(ctx, tenant)
	})
}

// Two carts that share an item, an order that needs it, and a fourth export.
func TestSeveral(t *testing.T) {
	t.Parallel()
	locker := lock.New(memstore.New())
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	var desk http.Handler
	send := func(path, body string) int {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("X-User-ID", "42")
		r.Header.Set("X-Tenant", "acme")
		w := httptest.NewRecorder()
		desk.ServeHTTP(w, r)
		return w.Code
	}
	running := 0
	desk = several(locker, func(w http.ResponseWriter, _ *http.Request) {
		require.Equal(t, http.StatusConflict, send("/carts", `{"items":[{"sku":"c"},{"sku":"b"}]}`))
		require.Equal(t, http.StatusConflict, send("/orders", `{"items":[{"sku":"a"}],"coupon":"SPRING"}`))
		require.Equal(t, http.StatusCreated, send("/orders", `{"items":[{"sku":"c"}],"coupon":"SPRING"}`), "what was refused holds nothing")
		w.WriteHeader(http.StatusCreated)
	}, func(_ http.ResponseWriter, _ *http.Request) {
		if running++; running < 3 {
			require.Equal(t, http.StatusOK, send("/exports", ""))
			return
		}
		require.Equal(t, http.StatusTooManyRequests, send("/exports", ""))
		require.ErrorIs(t, nightly(t.Context(), locker, "acme"), lock.ErrHeld)
	})
	require.Equal(t, http.StatusCreated, send("/carts", `{"items":[{"sku":"a"},{"sku":"b"}]}`))
	require.Equal(t, http.StatusBadRequest, send("/carts", `{"items":[]}`))
	require.Equal(t, http.StatusBadRequest, send("/orders", `{"items":[{"sku":"a"}],"coupon":null}`))
	require.Equal(t, http.StatusUnprocessableEntity, send("/orders", `{"items":[{"sku":"sold out"}]}`))
	require.NoError(t, locker.Do(t.Context(), lock.Key("coupon", ""), func(context.Context) error {
		require.Equal(t, http.StatusCreated, send("/orders", `{"items":[{"sku":"a"}]}`), "no coupon is no key")
		return nil
	}))
	require.Equal(t, http.StatusOK, send("/exports", ""))
	require.Equal(t, 3, running)
	require.NoError(t, nightly(t.Context(), locker, "acme"))
}
