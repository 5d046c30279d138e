package snippets_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
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
