package snippets_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

func TestConsoleOfThePage(t *testing.T) {
	t.Parallel()
	mux, locker, operatorsOnly := http.NewServeMux(), newLocker(t, memstore.New()), auth.Require

	mux.Handle("/admin/locks", operatorsOnly(console.New(locker, console.WithName("orders, production"))))

	require.Equal(t, 200, ask(mux, "GET", "/admin/locks", "").Code)
}

// The observer of the page keeps the key of a lost lease, and the Locker's log does not.
func TestKeysOfLostLeasesOfThePage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var open, closed bytes.Buffer
		restricted := slog.New(slog.NewJSONHandler(&closed, nil))

		lost := lock.WithObserver(func(ctx context.Context, e lock.Event) {
			if e.Kind == lock.EventLost {
				restricted.InfoContext(ctx, "lease lost", "key", e.Key)
			}
		})

		locker := lock.New(memstore.New(), lost, lock.WithLogger(slog.New(slog.NewJSONHandler(&open, nil))), lock.WithMaxHold(time.Minute))
		err := locker.Do(t.Context(), lock.Key("user", "jane"), func(ctx context.Context) error { <-ctx.Done(); return nil })
		require.ErrorIs(t, err, lock.ErrLost)
		require.NoError(t, locker.Close(t.Context()))
		synctest.Wait()
		require.Contains(t, closed.String(), `"key":"user=jane"`)
		require.NotContains(t, open.String(), "jane")
	})
}

// The line of the log leads to the entry that it is about.
func TestLinksOfThePage(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	_, err := store.Claim(t.Context(), keytext.Record("job=7"), lock.Claim{Token: "t", Lease: time.Millisecond, Linger: time.Hour})
	require.NoError(t, err)
	var out bytes.Buffer
	os := struct{ Stderr io.Writer }{&out}

	logger := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "console" {
				a.Value = slog.StringValue("https://shop.example/admin/locks" + a.Value.String())
			}
			return a
		},
	}))
	locker := lock.New(store, lock.WithLogger(logger))

	require.Eventually(t, func() bool {
		_, _, err := locker.Once(t.Context(), "job=7", nil, nil)
		return errors.Is(err, lock.ErrAbandoned)
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, locker.Close(t.Context()))
	var line struct{ Console string }
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), out.String())
	link, err := url.Parse(line.Console)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/admin/locks", console.New(newLocker(t, store)))
	got := ask(mux, "GET", link.RequestURI(), "")
	require.Equal(t, 200, got.Code)
	require.Contains(t, got.Body.String(), "outcome-unknown")
}

func TestErasureOfThePage(t *testing.T) {
	t.Parallel()
	ctx, userID, locker := t.Context(), "42", newLocker(t, memstore.New())
	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	h := auth.Require(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })))
	require.Equal(t, http.StatusCreated, ask(h, "POST", "/orders", "k").Code)

	erased, left, err := console.Erase(ctx, locker, userID) // for a user who has asked for that, and can send no more requests

	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{erased, left})
}
