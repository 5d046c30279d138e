package snippets_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func rebuild(ctx context.Context, locker *lock.Locker, index string, build func(ctx context.Context) error) error {
	err := locker.Do(ctx, lock.Key("index", index), build) // build gets a context that ends with the lock
	var refused *lock.RefusedError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s is being rebuilt, ask again in %v: %w", index, refused.Entry.Left, err) // 0: not known
	case errors.Is(err, lock.ErrUnavailable):
		return fmt.Errorf("Redis does not answer, and %s was not touched: %w", index, err)
	}
	return err
}

// remind sends at most one reminder to a user in an hour.
func remind(ctx context.Context, locker *lock.Locker, user string, send func(ctx context.Context) error) error {
	lease, err := locker.Acquire(ctx, lock.Key("reminder", user))
	if err != nil {
		return err // lock.ErrSettled within the hour, lock.ErrHeld while another process sends
	}
	defer func() { _ = lease.Release(ctx) }() // does nothing after Settle
	if err := send(lease.Context()); err != nil {
		return err
	}
	return lease.Settle(ctx, nil, time.Hour) // stays taken, although this process has left
}

// The code of the page returns the holder's time left, and a lock that stays until its expiry.
func TestLocksWithoutHTTP(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		store, ctx := memstore.New(), t.Context()
		locker, another := newLocker(t, store), newLocker(t, store)
		err := rebuild(ctx, locker, "orders", func(ctx context.Context) error {
			err := rebuild(ctx, another, "orders", func(context.Context) error { return errors.New("a second one runs") })
			require.ErrorIs(t, err, lock.ErrHeld)
			require.ErrorContains(t, err, "ask again in 30s")
			return nil
		})
		require.NoError(t, err)

		sent := 0
		send := func(context.Context) error { sent++; return nil }
		require.Error(t, remind(ctx, locker, "42", func(context.Context) error { return errors.New("away") }))
		require.NoError(t, remind(ctx, locker, "42", send), "a failed one can be sent again at once")
		require.ErrorIs(t, remind(ctx, locker, "42", send), lock.ErrSettled)
		time.Sleep(time.Hour)
		require.NoError(t, remind(ctx, locker, "42", send))
		require.Equal(t, 2, sent)
	})
}

type row struct{ written *int }

func write(_ context.Context, r row) error { *r.written++; return nil }

func report(ctx context.Context, rows []row) error {
	for _, r := range rows {
		if ctx.Err() != nil {
			return context.Cause(ctx) // the lease is over: another holder may be writing
		}
		if err := write(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

var errOvertaken = errors.New("orders: overtaken")

func setStatus(ctx context.Context, db *sql.DB, id, status string) error {
	lease, _ := lock.FromContext(ctx)
	fence, ok := lease.Fence()
	if !ok {
		return errors.New("orders: no fence: the route needs a Lock, and its Locker WithFencing")
	}
	result, err := db.ExecContext(ctx,
		`UPDATE orders SET status = $1, fence = $2 WHERE id = $3 AND fence <= $2`, status, fence, id)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errOvertaken, err)
	}
	return nil
}

// TestFence: a holder that overslept its lease is refused by the table.
func TestFence(t *testing.T) {
	t.Parallel()
	db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "orders.db")))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	const tables = "CREATE TABLE orders (id text, status text, fence int); INSERT INTO orders VALUES ('7', 'placed', 0)"
	must.Get(db.ExecContext(t.Context(), tables))(t)
	store := memstore.New()
	paused := newLocker(t, store, lock.WithFencing(), lock.WithLease(time.Second), lock.WithMaxHold(time.Second))
	other := newLocker(t, store, lock.WithFencing())
	key := lock.Key("order", "7")
	err := paused.Do(t.Context(), key, func(held context.Context) error {
		<-held.Done()
		require.ErrorIs(t, report(held, []row{{new(int)}}), lock.ErrLost)
		require.Eventually(t, func() bool {
			return other.Do(t.Context(), key, func(ctx context.Context) error { return setStatus(ctx, db, "7", "paid") }) == nil
		}, 30*time.Second, 10*time.Millisecond)
		// It does not look, and goes on.
		return setStatus(context.WithoutCancel(held), db, "7", "cancelled")
	})
	require.ErrorIs(t, err, errOvertaken)
	require.ErrorIs(t, err, lock.ErrLost)
	require.ErrorContains(t, setStatus(t.Context(), db, "7", "paid"), "no fence")
}

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
	locker := newLocker(t, memstore.New())
	var desk http.Handler
	send := func(path, body string) int {
		return do(desk, http.MethodPost, path, body, "X-User-ID", "42", "X-Tenant", "acme").Code
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
