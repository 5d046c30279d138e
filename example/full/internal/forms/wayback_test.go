package forms_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// startRefusing serves a form with a field of the given name and type, whose submissions are
// refused because the store is not there, under the strictest policies of a site.
func startRefusing(t *testing.T, name, kind, referrer string) (site string) {
	t.Helper()
	store := outage{memstore.New(), &shop{}} // unavailable
	l := lock.New(store)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	mux := http.NewServeMux()
	mux.Handle("POST /orders", latch.Idempotent(l, keyfunc.Global, keyfunc.Form("once"))(http.NotFoundHandler()))
	mux.HandleFunc("GET /{page...}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><h1>%s</h1>
			<form method="post" action="/orders">%s<input name="%s" type="%s"><button>Order</button></form>`, r.URL, form.Field(), name, kind)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'")
		w.Header().Set("Referrer-Policy", referrer)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestWayBack: without a script, and under the strictest policies, each refusal page has a link
// that works: to the form, or where the browser does not say where that is, to the site.
func TestWayBack(t *testing.T) {
	t.Parallel()
	for referrer, tt := range map[string]struct{ first, second string }{
		"same-origin": {"/new?for=tea&n=1", "/"},
		"no-referrer": {"/", "/"},
	} {
		site := startRefusing(t, "sku", "text", referrer)
		p := browser.New(t, browser.NoScript())
		p.Expect("status of")
		p.Expect("Content Security Policy") // the style of the page
		for again, want := range []string{tt.first, tt.second} {
			p.Open(site + "/new?for=tea&n=1")
			for range again + 1 { // the second time with the button of the page
				p.Follow(func() { p.Click("button") })
				require.Equal(t, "Not possible at the moment", p.Text("h1"))
			}
			p.Follow(func() { p.Click("a") })
			require.Equal(t, want, p.Text("h1"), "%s, %d", referrer, again)
		}
	}
}

// TestPasswordIsNotRepeated: a refusal page does not have what was typed into a field for a
// secret, and its reload sends it.
func TestPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, repeated := range map[string]bool{"password": false, "card[cvc]": false, "sku": true} {
		site := startRefusing(t, name, "password", "same-origin")
		p := browser.New(t, browser.NoScript())
		p.Expect("status of")
		p.Expect("Content Security Policy")
		p.Open(site + "/new")
		p.Type("input[type=password]", "hunter2")
		p.Press(browser.Enter)
		p.AwaitText("h1", "Not possible at the moment")
		require.Equal(t, repeated, browser.Eval[bool](p, `document.documentElement.outerHTML.includes("hunter2")`), name)
		require.Equal(t, repeated, p.Count("button") == 1, name)
		if !repeated {
			p.Reload()
			p.AwaitText("h1", "Not possible at the moment")
		}
	}
}
