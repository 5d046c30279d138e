package snippets_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestEvictionIsRefused(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, b := range walk.Blocks(t, "../redis.md") {
		switch b.Language {
		case "text":
			tested++
			srv := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
			_, err := redisstore.Open(t.Context(), srv.URL())
			require.EqualError(t, err, strings.TrimSuffix(b.Text, "\n"))
		case "conf":
			tested++
			var args []string
			for line := range strings.Lines(b.Text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				args = append(args, "--"+name, value)
			}
			srv := redistest.Start(t, args...)
			require.NoError(t, withStore(t.Context(), srv.URL(), func(*lock.Locker) {}))
		}
	}
	require.Equal(t, 2, tested)
}

// TestFullServer is the table of the page.
func TestFullServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for the end of a lease")
	t.Parallel()
	srv := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), srv.URL())
	require.NoError(t, err)
	defer store.Close()
	locker := newLocker(t, store, lock.WithLease(4*time.Second), lock.WithBudget(2*time.Second))
	var app application
	h := stdlibRoutes(locker, app.handler(201), app.handler(200))
	require.Equal(t, 201, ask(h, "POST", "/orders", "before").Code)
	app.whileIn(func() {
		srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
		time.Sleep(4500 * time.Millisecond) // longer than the lease
		_, err := store.Claim(context.Background(), "other", lock.Claim{Token: "t", Lease: time.Second})
		require.Error(t, err)
	})
	require.Equal(t, 201, ask(h, "POST", "/orders", "meanwhile").Code)
	require.NotContains(t, srv.Keys(t), "shop:lock:user=42", "it was released")

	refused := ask(h, "POST", "/orders", "after")
	require.Equal(t, 503, refused.Code)
	require.Contains(t, refused.Body.String(), "#unavailable")
	for _, key := range []string{"before", "meanwhile"} {
		require.Equal(t, "true", ask(h, "POST", "/orders", key).Header().Get("Idempotent-Replayed"), key)
	}
	require.EqualValues(t, 2, app.effects.Load())
	srv.Do(t, "CONFIG", "SET", "maxmemory", "0")
}

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
