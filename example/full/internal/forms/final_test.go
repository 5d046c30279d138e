package forms_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/keyfunc"
	latch "github.com/httplatch/httplatch/middleware"
)

// muse is the time in which a person does something else. The script goes by the clock: a page that
// is opened at once is the answer.
const muse = 600 * time.Millisecond

// asks is a page that has a question first, and sends the form when it is answered.
const asks = `addEventListener("submit", (e) => { e.preventDefault(); setTimeout(() => e.target.submit()); });`

// TestNextOrder: after an answer the same content is another order, if the user sends it again.
func TestNextOrder(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]plan{
		"":             {},
		"from a cache": {cached: true},
		"no referrer":  {referrer: "no-referrer"},
		"asks first":   {scripts: map[string][]byte{"/asks.js": []byte(asks)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWalk(t, p)
			w.send()
			w.thanks()
			ways := []func(){
				func() { w.Follow(func() { w.Click("p a") }) },
				w.Back,
				func() { w.Open(w.shop.url + "/new") },
			}
			for n, reach := range ways {
				reach()
				w.again()
				require.Equal(t, fmt.Sprintf("Thank you for order %d", n+2), w.Text("h1"))
				posts := w.shop.sent(t, n+2)
				require.Len(t, posts, n+2)
				require.NotEqual(t, posts[n].once, posts[n+1].once)
			}
		})
	}
	t.Run("the answer has no script", func(t *testing.T) {
		t.Parallel()
		w := startWalk(t, plan{bareAnswer: true})
		for n := range 2 {
			w.send()
			require.Equal(t, fmt.Sprintf("Thank you for order %d", n+1), w.Text("h1"))
			time.Sleep(muse) // else the next page would be taken for the answer
			w.Follow(func() { w.Click("p a") })
			w.fill()
		}
	})
}

// TestNextOrderAfterReload: the reload button has sent the form again, and the page that it led to
// is an answer.
func TestNextOrderAfterReload(t *testing.T) {
	t.Parallel()
	w := startWalk(t, plan{})
	w.unanswered()
	w.Reload()
	w.thanks()
	w.next(2)
}

// TestAnchor: a link within the page does not stop the form, nor does it leave the page.
func TestAnchor(t *testing.T) {
	t.Parallel()
	w := startWalk(t, plan{form: plainForm + `<a id="in" href="#in">Details</a>`})
	anchor := w.Aim("#in")
	w.Follow(func() {
		w.held()
		anchor()
		w.shop.release()
	})
	w.thanks()
	w.next(2)
}

// TestLookAgain: the page of the middleware has no script. Its button sends the same key, and
// what it leads to is the answer.
func TestLookAgain(t *testing.T) {
	t.Parallel()
	w := startWalk(t, plan{noWait: true})
	w.Follow(func() {
		w.held()
		w.PressReload()
	})
	w.fill()
	w.send()
	require.Equal(t, "Still being processed", w.Text("h1"))
	w.shop.release()
	time.Sleep(muse)
	w.send()
	w.thanks()
	require.EqualValues(t, 1, w.shop.orders.Load())
	w.next(2)
}

// TestTwoTabs: what is opened twice is ordered twice; a tab has a storage of its own.
func TestTwoTabs(t *testing.T) {
	t.Parallel()
	one := startWalk(t, plan{})
	other := walk{t, browser.New(t), one.shop}
	other.Open(one.shop.url + "/new")
	one.send()
	one.thanks()
	other.again()
	require.EqualValues(t, 2, one.shop.orders.Load())
}

// TestToken: a field that is new with each display is no part of the content if the form says so,
// and if the guard does not compare it. Otherwise each display is another form.
func TestToken(t *testing.T) {
	t.Parallel()
	for attribute, orders := range map[string]int{`data-latch="token"`: 1, `data-latch`: 2} {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			w := startWalk(t, plan{
				form:  strings.NewReplacer("data-latch", attribute, "<button", `<input type="hidden" name="token" value="{{.Token}}"><button`).Replace(plainForm),
				guard: []latch.IdempotentOption{latch.WithFingerprint(keyfunc.Form("sku"))},
			})
			w.unanswered()
			w.Back()
			w.Reload()
			w.again()
			require.EqualValues(t, orders, w.shop.orders.Load())
		})
	}
}

// TestMistake: an answer that asks for a correction is one, and what is sent then is another order.
func TestMistake(t *testing.T) {
	t.Parallel()
	w := startWalk(t, plan{})
	browser.Eval[string](w.Page, `document.querySelector("[name=sku]").value = ""`)
	w.send()
	require.Equal(t, "Please choose an article", w.Text("h1"))
	w.send()
	require.Equal(t, "Please choose an article", w.Text("h1"))
	w.Type("[name=sku]", "tea")
	w.send()
	w.thanks()
	posts := w.shop.sent(t, 3)
	require.NotEqual(t, posts[0].once, posts[1].once, "the handler is asked again, though its guard keeps the first answer")
	require.NotEqual(t, posts[1].once, posts[2].once)
	require.EqualValues(t, 1, w.shop.orders.Load())
}
