package forms_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

const twoForms = `<form id="a" method="post" action="/orders" data-latch>{{.Field}}
<input name="sku" value="tea"><button name="how" value="by mail">Mail</button> <button name="how" value="by hand">Fetch</button>
</form>
<form id="b" method="post" action="/orders" data-latch>
<input name="sku" value="milk"><button name="how" value="by mail">Mail</button>
</form>`

// disabling is a script that many sites have.
const disabling = `addEventListener("click", (e) => { if (e.target.tagName == "BUTTON") e.target.disabled = true; });`

// TestUnderWay: what a form is while its answer is awaited, and what arrives. The page that
// disables its button itself shows that the same would be seen, and that nothing would arrive.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	s := openShop(t, plan{form: twoForms})
	p := browser.New(t)
	p.Open(s.url + "/new")
	eye := p.OpenTab("about:blank")
	state := func() string {
		return browser.Eval[string](eye, `[...opener.document.querySelectorAll("button")].map((b) =>
			(b.disabled ? "disabled" : b.getAttribute("aria-disabled") ?? "-") + (b == opener.document.activeElement ? "*" : "")).join(" ")`)
	}
	require.Equal(t, "- - -", state())
	hand, other := p.Aim("#a button:nth-of-type(2)"), p.Aim("#b button")
	key := browser.Eval[string](p, `document.querySelector("#a [name=once]").value`)
	s.hold()
	hand()
	sent := s.sent(t, 1)[0]
	require.Equal(t, "by hand", sent.how, "the button's name and value arrive")
	require.Equal(t, key, sent.once, "that of the server; a page may show what is to be sent again")
	require.Equal(t, "true true* -", state(), "the focus stays, and the other form can be sent")
	other()
	posts := s.sent(t, 2)
	eye.Await(`opener.document.querySelectorAll("[aria-disabled]").length == 1`) // the browser has given up the first
	require.Equal(t, "- - true*", state())
	s.release()
	walk{t, p, s}.thanks()
	require.Equal(t, []string{"tea", "milk"}, []string{posts[0].sku, posts[1].sku})
	require.NotEqual(t, posts[0].once, posts[1].once)
	require.Len(t, s.sent(t, 2), 2)

	s = openShop(t, plan{form: twoForms, noScript: true, scripts: map[string][]byte{"/disabling.js": []byte(disabling)}})
	p = browser.New(t)
	p.Open(s.url + "/new")
	p.Click("#a button:nth-of-type(2)")
	p.Await(`document.querySelector("#a button:disabled")`)
	p.Click("#b input")
	require.Empty(t, s.sent(t, 0), "a disabled button sends nothing")
}

// TestOtherIntents: another button, and a form that goes elsewhere, are other submissions.
func TestOtherIntents(t *testing.T) {
	t.Parallel()
	const elsewhere = `<form class="%" method="post" action="/orders?to=%" data-latch>
		<input name="sku" value="tea"><button name="how" value="by mail">Mail</button></form>`
	const buttons = `<form id="e" method="post" action="/orders" data-latch>
		<input name="sku" value="tea"><button>Order</button> <button formaction="/orders?as=gift">Give</button></form>`
	s := openShop(t, plan{form: twoForms + strings.ReplaceAll(elsewhere, "%", "c") + strings.ReplaceAll(elsewhere, "%", "d") + buttons})
	p := browser.New(t)
	p.Open(s.url + "/new")
	s.hold()
	keys := map[string]bool{}
	for n, button := range []string{"#a button", "#a button:nth-of-type(2)", ".c button", ".d button", "#e button", "#e button:nth-of-type(2)", "#a button"} {
		p.Click(button)
		keys[s.sent(t, n+1)[n].once] = true
		p.Stop()
		p.Await(`!document.querySelector("[aria-disabled]")`)
	}
	require.Len(t, keys, 6, "the last one is the first again")
}

// TestStaysOnThePage: a download is an answer after which the form is still there.
func TestStaysOnThePage(t *testing.T) {
	t.Parallel()
	w := openWalk(t, plan{answer: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="order.txt"`)
	}}, "net::ERR_ABORTED")
	w.Click("button")
	w.shop.sent(t, 1)
	require.Equal(t, 1, w.Count("[aria-disabled=true]"))
	w.Await(`!document.querySelector("[aria-disabled]")`)
	w.Click("button")
	posts := w.shop.sent(t, 2)
	require.Equal(t, posts[0], posts[1])
	require.EqualValues(t, 1, w.shop.orders.Load())
}

// TestBackForwardCache: a page that comes back as it was left has a button that can be used,
// unlike that of a page which disables it.
func TestBackForwardCache(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]plan{
		"script":    {cached: true},
		"disabling": {cached: true, noScript: true, scripts: map[string][]byte{"/disabling.js": []byte(`addEventListener("submit", (e) => { e.submitter.disabled = true; });`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := openWalk(t, p, "net::ERR_")
			browser.Eval[bool](w.Page, `(addEventListener("pageshow", (e) => { window.persisted = e.persisted; }), true)`)
			w.unanswered()
			w.Back()
			require.True(t, browser.Eval[bool](w.Page, "window.persisted"), "it is the same page")
			require.Equal(t, "tea", browser.Eval[string](w.Page, `document.querySelector("[name=sku]").value`))
			alive := browser.Eval[bool](w.Page, `!document.querySelector("button:disabled, [aria-disabled]")`)
			require.Equal(t, !p.noScript, alive)
			if alive {
				w.send()
				w.thanks()
				require.EqualValues(t, 1, w.shop.orders.Load())
			}
		})
	}
}

// TestStorageBlocked: an origin that may keep nothing has a key for as long as the page.
func TestStorageBlocked(t *testing.T) {
	t.Parallel()
	for journey, posts := range map[string]int{"double click": 1, "stopped, and again": 2} {
		w := openWalk(t, plan{noIntegrity: true, policy: "sandbox allow-scripts allow-forms allow-popups"}, "sandboxed")
		require.Equal(t, "SecurityError", browser.Eval[string](w.Page, `(() => { try { return "" + sessionStorage; } catch (e) { return e.name; } })()`))
		journeys[journey](w, posts)
		require.Len(t, w.shop.sent(t, posts), posts)
		require.EqualValues(t, 1, w.shop.orders.Load())
	}
}
