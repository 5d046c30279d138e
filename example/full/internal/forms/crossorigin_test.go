package forms_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/cors"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestScriptsOfOtherOrigins: with the names of this package, a browser lets a script of another
// origin send a key, and read each header of a guard. Without them, it does not send the request.
func TestScriptsOfOtherOrigins(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Quick, "starts a browser")
	locker := lock.New(memstore.New(), lock.WithWait(0))
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	runs := 0
	guarded := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.ACP(), latch.WithLifetimeHeader())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(http.StatusCreated)
		}))
	open := cors.New(cors.Options{
		AllowedOrigins: []string{"*"}, AllowedMethods: []string{http.MethodPost},
		AllowedHeaders: append(latch.RequestHeaders(), "Content-Type"), ExposedHeaders: latch.ResponseHeaders(),
	}).Handler(guarded)
	closed := cors.New(cors.Options{AllowedOrigins: []string{"*"}, AllowedMethods: []string{http.MethodPost}, AllowedHeaders: []string{"Content-Type"}}).Handler(guarded)
	serve := func(h http.Handler) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	shop := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Shop</title><p>Shop</p>`)
	}))
	p := browser.New(t)
	p.Expect("CORS")
	p.Expect("ERR_FAILED")
	p.Expect("status of 422")
	p.Open(shop)
	order := func(api, key, body string) string {
		script := fmt.Sprintf(`(window.said = "", fetch(%q, {method: "POST", headers: {"Idempotency-Key": %q, "Content-Type": "application/json"}, body: %q})
			.then(a => [a.status, a.headers.get("Idempotency-Key"), a.headers.get("Idempotent-Replayed"), a.headers.get("Idempotency-Key-Lifetime") > 0,
				a.headers.get("Latch-Problem")].join(" "), e => "" + e).then(s => { window.said = s }), true)`, api+"/orders", key, body)
		browser.Eval[bool](p, script)
		p.Await("window.said")
		return browser.Eval[string](p, "window.said")
	}
	api := serve(open)
	require.Equal(t, "201 k  true ", order(api, "k", `{}`))
	require.Equal(t, "201 k true true ", order(api, "k", `{}`))
	require.Equal(t, "422 k  false key-reused", order(api, "k", `{"sku":"tea"}`))
	require.Equal(t, 1, runs)

	require.Contains(t, order(serve(closed), "l", `{}`), "Failed to fetch")
	require.Equal(t, 1, runs, "a preflight has refused it")
}
