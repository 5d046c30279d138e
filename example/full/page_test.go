package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
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

// playStory plays the story that begins with a scene, and returns when it has ended.
func playStory(p *browser.Page, scene string) {
	p.Click(`button[data-plays^="` + scene + `"]:not(.all)`)
	p.Await(`!document.querySelector("[aria-busy=true]")`)
}

// One button plays every scene of clicks. Each scene then shows the sentences that it announces
// before it is played.
func TestPlayAll(t *testing.T) {
	var quorum []string
	for range 3 {
		quorum = append(quorum, "-redis", redistest.Start(t).URL())
	}
	for name, start := range map[string]func(t *testing.T) *running{
		"small":  startSmall,
		"full":   func(t *testing.T) *running { t.Helper(); return startDesk(t, "-budget", "3s") },
		"quorum": func(t *testing.T) *running { t.Helper(); return startDesk(t, append(quorum, "-budget", "3s")...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPage(t, start(t))
			p.Expect("status of 503")
			p.Expect("status of 409")
			awaitScript(p)
			scenes := []string{"double-none", "double-ours", "lost-naive", "lost-ours"}
			verdicts, clicks := map[string]string{}, map[string]int{}
			for _, scene := range scenes {
				will, ok := strings.CutPrefix(p.Text("#"+scene+" .verdict"), "You will see:\n")
				require.True(t, ok)
				verdicts[scene], clicks[scene] = will, p.Count("#"+scene+" .try")
			}
			p.Click(".all")
			p.Await(`!document.querySelector("[aria-busy=true]")`)
			for _, scene := range scenes {
				require.Equal(t, verdicts[scene], p.Text("#"+scene+" .verdict"))
				require.Equal(t, clicks[scene], p.Count("#"+scene+" .try"))
			}
			require.Zero(t, p.Count(".scene:not(#carts-shared, #carts-apart) .will"))
		})
	}
}

// startSmall runs the small desk, whose page is the same.
func startSmall(t *testing.T) *running {
	t.Helper()
	program := filepath.Join(t.TempDir(), "desk")
	out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return startWith(t, func(ctx context.Context, stdout, stderr io.Writer) error {
		small := exec.CommandContext(ctx, program, "-addr", "127.0.0.1:0", "-budget", "3s")
		var log bytes.Buffer // stderr is read while the desk runs
		small.Stdout, small.Stderr = stdout, &log
		small.Cancel = func() error { return small.Process.Signal(os.Interrupt) }
		err := small.Run()
		_, _ = log.WriteTo(stderr)
		if !errors.Is(err, context.Canceled) { // it exits with 0
			return fmt.Errorf("the small desk: %w", err)
		}
		return nil
	})
}

// TestLooks takes pictures for people to look at, on a phone and on a desk, in
// light and in dark, and has axe look at each.
func TestLooks(t *testing.T) {
	for width, height := range map[int64]int64{375: 667, 1280: 1040} {
		for scheme, opts := range map[string][]browser.Option{"light": {}, "dark": {browser.Dark()}} {
			name := fmt.Sprintf("desk-%d-%s", width, scheme)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := startDesk(t)
				p := openPage(t, c, append(opts, browser.Size(width, height))...)
				p.Expect("status of 503")
				p.Expect("status of 409")
				awaitScript(p)
				p.LoadAxe()
				look := func(scene string) {
					require.LessOrEqual(t, browser.Eval[int64](p, `document.documentElement.scrollWidth`), width, "nothing sticks out")
					require.Empty(t, p.Violations("window"), scene)
					p.ScreenshotView(name + "-" + scene + "-view")
					p.Screenshot(name + "-" + scene)
				}
				answered := func() {
					p.Await(`!document.querySelector(".pending") && !document.querySelector("#outcome").textContent.startsWith("Sent")`)
				}
				look("1-start")
				playStory(p, "double-none")
				look("2-double")
				playStory(p, "lost-naive")
				look("3-lost")
				playStory(p, "double-ours")
				look("4-stage")
				choose(p, "none")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				look("5-sent")
				answered()
				choose(p, "both")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				answered()
				choose(p, "naive")
				p.Click("[name=lose]")
				p.Click(orderButton)
				answered()
				look("6-incident")
				choose(p, "lock")
				p.Click(orderButton)
				answered()
				look("7-recovered")
			})
		}
	}
}
