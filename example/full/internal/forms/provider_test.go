package forms_test

import (
	"fmt"
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// startProvider starts a payment provider on another site than shops are on, whose page leads to
// the one that it was asked to return to.
func startProvider(t *testing.T, referrer string) (site string) {
	t.Helper()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", referrer)
		_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><h1>Pay</h1>
			<a href="%[1]s">link</a> <a href="%[1]s" target="_blank">tab</a> <button onclick="location = this.value" value="%[1]s">location</button>`,
			html.EscapeString(r.URL.Query().Get("back")))
	}))
	return strings.Replace(url, "127.0.0.1", "localhost", 1)
}

func payingWalk(t *testing.T, p plan, referrer string) walk {
	t.Helper()
	p.provider = startProvider(t, referrer)
	// A policy of the page applies to where its form is redirected to.
	p.policy = strictPolicy + " http://localhost:*"
	return startWalk(t, p)
}

// pay sends the form, and comes back from the provider by what selector finds there.
func (w walk) pay(selector string) {
	w.Helper()
	w.send()
	w.AwaitText("h1", "Pay")
	time.Sleep(muse)
	w.Follow(func() { w.Click(selector) })
	w.thanks()
}

// TestOrdersPaidElsewhere: each of four purchases of the same is an order, though the script
// never saw the answer to its form. Its twin has a proxy that lets the report of the guard not
// pass: all four are the first.
func TestOrdersPaidElsewhere(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plan     plan
		referrer string // policy of the provider
		way      string
		orders   int
	}{
		"by a link, no referrer":           {plan{}, "no-referrer", "a", 4},
		"by location, no referrer":         {plan{}, "no-referrer", "button", 4},
		"by a link":                        {plan{}, "unsafe-url", "a", 4},
		"by location":                      {plan{}, "unsafe-url", "button", 4},
		"no referrer of the shop's either": {plan{referrer: "no-referrer"}, "no-referrer", "a", 4},
		"no report":                        {plan{mute: true}, "no-referrer", "a", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := payingWalk(t, tt.plan, tt.referrer)
			for n := range 4 {
				if n > 0 {
					w.Follow(func() { w.Click("p a") })
					w.fill()
				}
				w.pay(tt.way)
			}
			posts := w.shop.sent(t, 4)
			require.Len(t, posts, 4)
			keys := map[string]bool{}
			for _, sent := range posts {
				keys[sent.once] = true
			}
			require.Len(t, keys, tt.orders)
			require.EqualValues(t, tt.orders, w.shop.orders.Load())
			require.LessOrEqual(t, browser.Eval[int](w.Page, `document.cookie.split("latch-").length - 1`), tt.orders%4, "none is left of an order that is over")
		})
	}
}

// TestOnePurchaseElsewhere: what was one order at the shop is one when it is paid elsewhere.
func TestOnePurchaseElsewhere(t *testing.T) {
	t.Parallel()
	w := payingWalk(t, plan{}, "no-referrer")
	w.Follow(func() {
		click := w.held()
		click()
		w.shop.release()
	})
	w.AwaitText("h1", "Pay")
	w.Back() // not paid; the same form again leads to the same payment
	w.fill()
	w.send()
	w.AwaitText("h1", "Pay")
	require.EqualValues(t, 1, w.shop.orders.Load())
	w.Back()
	w.Reload()
	w.fill()
	w.pay("a")
	require.EqualValues(t, 1, w.shop.orders.Load())
	w.Follow(func() { w.Click("p a") })
	w.fill()
	w.unanswered()
	w.Back()
	w.pay("a")
	require.EqualValues(t, 2, w.shop.orders.Load())
}

// TestOrdersInOtherWindows: a form whose answer goes to another window is another order each
// time; and so is one that is opened in another tab after the answer has come.
func TestOrdersInOtherWindows(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"new tabs": "_blank", "one more window": "payment"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := payingWalk(t, plan{form: strings.Replace(plainForm, "<form", `<form target="`+target+`"`, 1)}, "no-referrer")
			for n := range 3 {
				click := w.Aim("button")
				pay := func() {}
				if target == "_blank" || n == 0 {
					tab := w.Opened("the answer", click)
					tab.AwaitText("h1", "Pay")
					pay = func() {
						time.Sleep(muse)
						tab.Follow(func() { tab.Click("a") })
						tab.AwaitText("h1", "Thank you for order")
					}
				} else {
					click()
				}
				w.shop.sent(t, n+1)
				click() // within 10 s it is a double click; on a busy machine, a payment takes longer
				pay()
				w.Await(`!document.querySelector("[aria-disabled]")`)
			}
			require.Len(t, w.shop.sent(t, 3), 3)
			require.EqualValues(t, 3, w.shop.orders.Load())
		})
	}
	t.Run("a copy of the tab", func(t *testing.T) {
		t.Parallel()
		w := payingWalk(t, plan{}, "no-referrer")
		w.pay("a")
		tab := walk{t, w.OpenTab(w.shop.url + "/new"), w.shop}
		tab.fill()
		tab.pay("a")
		require.EqualValues(t, 2, w.shop.orders.Load())
	})
}

// TestPageOfTheAnswerIsLost: the redirect has arrived, and the page that it leads to has not.
// The user has seen no answer, so it is one order; and the next one is another.
func TestPageOfTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(w walk){
		"back, and again":             func(w walk) { w.Back(); w.again() },
		"back, reload, and again":     func(w walk) { w.Back(); w.Reload(); w.again() },
		"address typed in, and again": func(w walk) { time.Sleep(muse); w.Open(w.shop.url + "/new"); w.again() },
		"reload":                      func(w walk) { w.Reload(); w.thanks() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWalk(t, plan{})
			w.shop.cut.Store(true)
			w.send()
			w.shop.cut.Store(false)
			again(w)
			require.EqualValues(t, 1, w.shop.orders.Load())
			w.next(2)
		})
	}
}

// TestSamePageAgain: the answer is the page with the form, as in a list that one adds to.
func TestSamePageAgain(t *testing.T) {
	t.Parallel()
	for _, referrer := range []string{"", "no-referrer"} {
		w := startWalk(t, plan{referrer: referrer, answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/new", http.StatusSeeOther)
		}})
		for n := range 3 {
			w.fill()
			w.send()
			require.EqualValues(t, n+1, w.shop.orders.Load())
		}
	}
}

// TestFieldsOutside: fields and buttons that belong to a form by their attribute form are part
// of it, and the key is one field.
func TestFieldsOutside(t *testing.T) {
	t.Parallel()
	const outside = `<form id="f" method="post" action="/orders" data-latch></form>
<label>Article <input name="sku" form="f"></label><button name="how" value="by mail" form="f">Order</button>
<input type="hidden" name="once" value="{{.Token}}" form="f">`
	w := startWalk(t, plan{form: outside})
	w.unanswered()
	w.Back()
	w.Reload()
	w.Type("[name=sku]", "milk")
	w.send()
	w.thanks()
	require.EqualValues(t, 2, w.shop.orders.Load(), "another article")
	w.next(2) // the one whose answer was lost
	posts := w.shop.sent(t, 3)
	require.Equal(t, "tea", posts[len(posts)-1].sku)
	keys := []string{posts[0].once, posts[len(posts)-2].once}
	slices.Sort(keys)
	require.Len(t, slices.Compact(keys), 2)
}
