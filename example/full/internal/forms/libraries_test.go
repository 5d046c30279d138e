package forms_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/example/full/internal/browser/npm"
)

// What both need in addition to strictPolicy.
const libraryPolicy = "default-src 'none'; script-src 'self'; form-action 'self'; connect-src 'self'; style-src 'unsafe-inline'"

const htmxForm = `<form hx-post="/orders" hx-target="main" data-latch>{{.Field}}
<label>Article <input name="sku"></label>
<button name="how" value="by mail">Order</button>
</form>`

func withLibrary(t *testing.T, l npm.Library, p plan) plan {
	t.Helper()
	p.policy = libraryPolicy
	p.scripts = map[string][]byte{"/library.js": l.Load(t)}
	if l.Name == "htmx.org" {
		p.form = htmxForm
	}
	return p
}

// TestScriptInTheBody: Turbo runs a script of the body again with each page that it shows. It
// stays one.
func TestScriptInTheBody(t *testing.T) {
	t.Parallel()
	p := withLibrary(t, npm.Turbo8, plan{noScript: true, form: plainForm + `<script src="/latch-in-body.js"></script>`})
	p.scripts["/latch-in-body.js"] = latchScript(t)
	w := openWalk(t, p)
	s := w.shop
	browser.Eval[int](w.Page, "latch.mark = 1")
	for range 3 {
		click := w.held()
		click()
		s.release()
		w.thanks()
		w.Await(`!Object.keys(sessionStorage).some((name) => name.startsWith("latch"))`)
		w.Click("p a")
		w.fill()
		require.Equal(t, 1, browser.Eval[int](w.Page, "latch.mark ?? 0"), "it is the one of the first page")
	}
	require.Len(t, s.sent(t, 3), 3)
	require.EqualValues(t, 3, s.orders.Load())
}

// TestLibraries: htmx and Turbo send the form by fetch or XMLHttpRequest. With the script, the
// request has the key in the header too.
func TestLibraries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		lib  npm.Library
	}{{"htmx 2", npm.HTMX2}, {"htmx 4", npm.HTMX4}, {"Turbo 8", npm.Turbo8}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T, p plan) walk {
				t.Helper()
				return openWalk(t, withLibrary(t, tt.lib, p), "net::ERR_", "Failed to load resource", "Failed to fetch", "htmx:")
			}
			t.Run("double click, and the next order", func(t *testing.T) {
				t.Parallel()
				w := start(t, withScript)
				click := w.held()
				click()
				require.Equal(t, "true", browser.Eval[string](w.Page, `document.querySelector("button").ariaDisabled`))
				w.shop.release()
				w.thanks()
				w.Await(`!Object.keys(sessionStorage).some((name) => name.startsWith("latch"))`) // the answer was final
				require.EqualValues(t, 1, w.shop.orders.Load())
				sent := w.shop.sent(t, 1)
				require.Len(t, sent, 1)
				require.NotEmpty(t, sent[0].once)
				require.Equal(t, post{sent[0].once, sent[0].once, "tea", "by mail"}, sent[0])
				w.Click("p a")
				w.fill()
				w.Click("button")
				w.AwaitText("h1", "order 2")
			})
			for name, p := range map[string]plan{"lost answer": withScript, "lost answer without": scriptless} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					w := start(t, p)
					w.shop.lose.Store(true)
					w.Click("button")
					w.Await(`performance.getEntriesByName(location.origin + "/orders").length`)
					w.Await(`!document.querySelector("button[disabled], button[aria-disabled]")`)
					w.shop.lose.Store(false)
					w.Open(w.shop.url + "/new") // an address that is typed in
					w.fill()
					w.Click("button")
					w.thanks()
					if p.noScript {
						require.EqualValues(t, 2, w.shop.orders.Load())
					} else {
						require.EqualValues(t, 1, w.shop.orders.Load())
					}
				})
			}
		})
	}
}

// TestCheckedField: a request of htmx that checks a field neither stops the click on the button at the same time, nor ends
// the key of an order whose answer was lost.
func TestCheckedField(t *testing.T) {
	t.Parallel()
	const checked = `performance.getEntriesByType("resource").filter((e) => e.name.includes("checked")).length`
	for _, lib := range []npm.Library{npm.HTMX2, npm.HTMX4} {
		p := withLibrary(t, lib, plan{})
		p.form = strings.Replace(p.form, `name="sku"`, `name="sku" hx-get="/favicon.ico?checked" hx-trigger="blur" hx-swap="none"`, 1)
		w := openWalk(t, p, "net::ERR_", "Failed to load resource", "Failed to fetch", "htmx:")
		w.shop.lose.Store(true)
		w.Click("button")
		w.shop.sent(t, 1)
		w.Await(checked + " == 1")
		w.Await(`!document.querySelector("[aria-disabled]")`)
		w.shop.lose.Store(false)
		w.Click("[name=sku]")
		w.Press(browser.Tab)
		w.Await(checked + " == 2")
		w.Click("button")
		w.thanks()
		require.EqualValues(t, 1, w.shop.orders.Load(), lib.Version)
	}
}

// TestCopyOfALeftPage: in what htmx and Turbo keep of a page that was left, the form is another submission.
func TestCopyOfALeftPage(t *testing.T) {
	t.Parallel()
	stays := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/vnd.turbo-stream.html")
	}
	for lib, answer := range map[npm.Library]http.HandlerFunc{npm.HTMX2: nil, npm.Turbo8: stays} {
		p := withLibrary(t, lib, plan{form: plainForm, answer: answer})
		p.form = strings.Replace(p.form, "<form", `<a id="other" href="/orders/9">Order 9</a><form hx-push-url="true"`, 1)
		w := openWalk(t, p)
		for n, sku := range []string{"tea", "tea", "milk"} {
			w.Type("[name=sku]", sku)
			w.Click("button")
			require.Equal(t, sku, w.shop.sent(t, n+1)[n].sku)
			w.Await(`!Object.keys(sessionStorage).some((name) => name.startsWith("latch"))`)
			if answer != nil {
				w.Click("#other")
			}
			w.thanks()
			require.EqualValues(t, n+1, w.shop.orders.Load(), lib.Name)
			browser.Eval[bool](w.Page, "(history.back(), true)")
			w.AwaitText("h1", "New order")
			require.False(t, browser.Eval[bool](w.Page, `!!document.querySelector("[aria-disabled]")`), "its button looks as if it was not under way")
		}
	}
}
