package middleware_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The function of WithReplay refuses or changes a replay, and the record stays.
func TestWithReplay(t *testing.T) {
	t.Parallel()
	var hook func(r *http.Request, a *latch.Answer) error
	runs := 0
	h := once(newLocker(t, memstore.New()), latch.WithReplay(func(r *http.Request, a *latch.Answer) error { return hook(r, a) }))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("order 1"))
		}))
	hook = func(*http.Request, *latch.Answer) error { return errors.New("called for the first answer") }
	require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)

	unchanged := func() {
		t.Helper()
		hook = func(r *http.Request, a *latch.Answer) error { //nolint:unparam // it is a hook
			require.Equal(t, "42", r.Header.Get("X-User-ID"))
			require.Equal(t, &latch.Answer{Status: 201, Header: http.Header{"Location": {"/orders/1"}, "Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte("order 1")}, a)
			return nil
		}
		w := serve(h, keyed("k"))
		require.Equal(t, http.StatusCreated, w.Code)
		require.Equal(t, "order 1", w.Body.String())
		require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	}
	unchanged()

	hook = func(_ *http.Request, a *latch.Answer) error { //nolint:unparam // it is a hook
		copy(a.Body, "ORDER")
		a.Status = http.StatusOK
		a.Header.Del("Location")
		a.Header.Set("X-Adapted", "1")
		return nil
	}
	w := serve(h, keyed("k"))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "ORDER 1", w.Body.String())
	require.Equal(t, []string{"1"}, w.Header().Values("X-Adapted"))
	require.Empty(t, w.Header().Values("Location"))
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	unchanged()

	hook = func(_ *http.Request, a *latch.Answer) error {
		a.Status = 0
		return &keyfunc.Error{Status: http.StatusForbidden, Detail: "revoked"}
	}
	w = serve(h, keyed("k"))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), `"detail":"revoked"`)
	require.Equal(t, "refused", w.Header().Get("Latch-Problem"))
	require.Empty(t, w.Header().Values("Idempotent-Replayed"))
	require.NotContains(t, w.Body.String(), "order 1")

	for name, fails := range map[string]func(a *latch.Answer) error{
		"its own failure":        func(*latch.Answer) error { return errors.New("secret of the database") },
		"a status of no answer":  func(a *latch.Answer) error { a.Status = 100; return nil },
		"a header of no record":  func(a *latch.Answer) error { a.Header.Set("Set-Cookie", "s=1"); return nil },
		"a body of a bodyless":   func(a *latch.Answer) error { a.Status = http.StatusNoContent; return nil },
		"a refusal as an answer": func(a *latch.Answer) error { a.Status = 1000; return nil },
	} {
		hook = func(_ *http.Request, a *latch.Answer) error { return fails(a) }
		w = serve(h, keyed("k"))
		require.Equal(t, http.StatusInternalServerError, w.Code, name)
		require.NotContains(t, w.Body.String(), "secret", name)
		require.NotContains(t, w.Body.String(), "order 1", name)
		unchanged()
	}
	require.Equal(t, 1, runs)
	require.PanicsWithValue(t, "middleware.WithReplay: nil function", func() { latch.WithReplay(nil) })
}

// A function of WithReplay changes the body. A header to which the handler has added values also has the values of
// the middleware outside of the repeat.
func TestChangedReplayKeepsHeadersOfOuterMiddleware(t *testing.T) {
	t.Parallel()
	changes := latch.WithReplay(func(_ *http.Request, a *latch.Answer) error { a.Body = []byte("changed"); return nil })
	for inner, set := range innerHandlers {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			set(w.Header())
			w.WriteHeader(http.StatusCreated)
		})
		for name, outer := range outerMiddleware {
			guarded := once(newLocker(t, memstore.New()), changes)(handler)
			require.Equal(t, http.StatusCreated, serve(outer(guarded), keyed("k")).Code)
			again := serve(outer(guarded), keyed("k"))
			require.Equal(t, "changed", again.Body.String())
			require.Equal(t, vary(serve(outer(handler), keyed("k")).Header()), vary(again.Header()), "handler %s, outside %s", inner, name)
		}
	}
}
