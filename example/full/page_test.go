package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// Tests with a browser run before all others, one at a time, though each may
// have parts that run together: a Chromium at work leaves too little of a small
// machine to tests that hold a store to its budget.

// openPage opens the page of a desk, with its script in place if it may run.
func openPage(t *testing.T, c *running, opts ...browser.Option) *browser.Page {
	t.Helper()
	p := browser.New(t, opts...)
	p.Open(c.url)
	return p
}

// awaitScript returns when the page's script has taken over the form.
func awaitScript(p *browser.Page) { p.Await(`"ready" in document.documentElement.dataset`) }

func choose(p *browser.Page, guard string) {
	p.Click(fmt.Sprintf("label:has([name=guard][value=%s])", guard))
}

const orderButton = "button.order"

// dawdle makes slow work so slow that a second click of a busy machine falls
// into it.
func dawdle(p *browser.Page) {
	browser.Eval[string](p, `document.querySelector("[name=work]").value = "5s"`)
}

// TestDoubleClick: what a double click of a person comes to behind each guard,
// in orders that exist and in words.
func TestDoubleClick(t *testing.T) {
	for guard, want := range map[string]struct {
		orders  int
		verdict string
		rows    []string
	}{
		"none":       {2, "2 clicks, 2 orders: the customer pays twice.", []string{"Placed", "Placed"}},
		"naive":      {1, "2 clicks, 1 order: the second click was refused.", []string{"Placed", "Your order is already being processed."}},
		"lock":       {1, "2 clicks, 1 order: the second click was refused.", []string{"Placed", "Another request for the same thing is still being processed."}},
		"idempotent": {1, "2 clicks, 1 order: both clicks got its number.", []string{"Placed", "Repeated"}},
		"both":       {1, "2 clicks, 1 order: both clicks got its number.", []string{"Placed", "Repeated"}},
	} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t)
			p := openPage(t, c)
			p.Expect("status of 409")
			awaitScript(p)
			dawdle(p)
			choose(p, guard)
			p.ClickTwice(orderButton, 30*time.Millisecond)
			p.AwaitText("#outcome", want.verdict)

			orders := c.orders("42")
			require.Len(t, orders, want.orders)
			require.Equal(t, 2, p.Count(".burst .try"))
			for i, words := range want.rows {
				row := p.Text(fmt.Sprintf(".burst .try:nth-child(%d)", i+1))
				require.Contains(t, row, words)
				if want.orders == 1 && (words == "Placed" || words == "Repeated") {
					require.Contains(t, row, orders[0].ID[:6], "the same order, whichever click is asked")
				}
			}
			require.Equal(t, want.orders, p.Count("#orders li.new"))
		})
	}
}

// TestKeyboard orders without a mouse.
func TestKeyboard(t *testing.T) {
	c := startDesk(t, "-work", "0s")
	p := openPage(t, c)
	awaitScript(p)
	focus := func() string {
		return browser.Eval[string](p, `document.activeElement.name || document.activeElement.innerText.replaceAll("\n", " ")`)
	}
	var seen []string
	for range 13 {
		p.Press(browser.Tab)
		seen = append(seen, focus())
		if focus() == "guard" {
			p.Press(browser.Up) // from Both to Idempotent
			require.Equal(t, "idempotent", browser.Eval[string](p, `document.activeElement.value`))
		}
	}
	require.Equal(t, []string{
		"Console", "Metrics",
		"Play all a double click and a lost packet, without httplatch and with it",
		"Double click no guard", "Lost packet naive lock", "Both, with httplatch", "Play the carts",
		"guard", "work", "lose", "sku", "quantity", "user",
	}, seen)
	p.Press(browser.Tab)
	require.Equal(t, "Order", focus())
	require.NotEqual(t, "none", browser.Eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`), "it can be seen where the focus is")
	p.Press(browser.Enter)
	p.AwaitText("#outcome", "1 click, 1 order.")
	require.Len(t, c.orders("42"), 1)
	require.Zero(t, browser.Eval[int](p, `[...document.querySelectorAll("input:not([type=hidden]), button, a:not([hidden])")]
		.filter((e) => !e.labels?.length && !e.textContent.trim()).length`), "everything has a name")
	require.Equal(t, "status", browser.Eval[string](p, `document.querySelector("#outcome").role`), "it is read out")
}

// TestAnswerLostOnItsWay: the connection breaks after the order was placed. If the browser had
// used it before, it sends the form again by itself: without a key, that is a second order
// from one click. If not, the customer without a key does not know. With one, the page sends
// it again if the browser does not, and gets the first answer.
func TestAnswerLostOnItsWay(t *testing.T) {
	for name, tt := range map[string]struct {
		guard     string
		keepAlive bool
		orders    int
		result    string
		verdict   string
	}{
		"no guard, used connection": {"none", true, 2, "Placed", "1 click, 2 orders: the customer pays twice."},
		"no guard, new connection":  {"none", false, 1, "No answer", "1 click, 1 order, and the customer does not know: no answer came."},
		"both, used connection":     {"both", true, 1, "Repeated", "1 click, 1 order."},
		"both, new connection":      {"both", false, 1, "Repeated", "1 click, 1 order."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, "-work", "0s")
			desk, err := url.Parse(c.url)
			require.NoError(t, err)
			var lost atomic.Bool
			gateway := httptest.NewUnstartedServer(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(desk); r.Out.Host = r.In.Host },
				ModifyResponse: func(r *http.Response) error {
					if r.Request.Method == http.MethodPost && lost.CompareAndSwap(false, true) {
						panic(http.ErrAbortHandler)
					}
					return nil
				},
			})
			gateway.Config.SetKeepAlivesEnabled(tt.keepAlive)
			gateway.Start()
			t.Cleanup(gateway.Close)
			p := browser.New(t)
			p.Expect("ERR_EMPTY_RESPONSE")
			p.Open(gateway.URL)
			awaitScript(p)
			p.Click("[name=work]")
			choose(p, tt.guard)
			p.Click(orderButton)
			p.AwaitText("#outcome", tt.verdict)
			require.Contains(t, p.Text("#bursts"), tt.result)
			require.Len(t, c.orders("42"), tt.orders)
		})
	}
}
