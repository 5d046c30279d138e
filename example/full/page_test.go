package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// tryForm sends the page's form, as its script does; change is what differs from
// the usual: names and values, and "" for a field that is missing.
func (c *client) tryForm(header []string, change ...string) reply {
	c.t.Helper()
	form := url.Values{"once": {"k"}, "user": {"42"}, "sku": {"tea"}, "quantity": {"1"}, "guard": {"both"}, "work": {"0s"}}
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
		if change[i+1] == "" {
			form.Del(change[i])
		}
	}
	return c.do("POST", "/try", form.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded")...)
}

var asBrowser = []string{"Accept", "text/html,application/xhtml+xml"}

func TestPage(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	got := c.do("GET", "/", "")
	require.Equal(t, 200, got.status)
	require.Equal(t, "text/html; charset=utf-8", got.header.Get("Content-Type"))
	policy := got.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.Contains(t, got.body, "<form")
	require.False(t, strings.Contains(got.body, "http://") || strings.Contains(got.body, "https://"), "the page loads nothing from elsewhere")
	require.NotEqual(t, got.body, c.do("GET", "/", "").body, "each form has a key of its own")

	for _, query := range []string{"order=nope&user=42", "order=%00", "guard=%3Cscript%3E&user=%3Cscript%3E"} {
		got = c.do("GET", "/?"+query, "")
		require.Equal(t, 200, got.status)
		require.Contains(t, got.body, "Nothing yet.")
		require.NotContains(t, got.body, "<script>")
	}
	id := c.tryForm(nil).header.Get("Location")[len("/orders/"):]
	require.Contains(t, c.do("GET", "/?order="+id+"&user=42", "").body, "is placed")
	require.Contains(t, c.do("GET", "/?order="+id+"&user=43", "").body, "Nothing yet.", "orders are their user's")
}

func TestRefusedForms(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	for _, tt := range []struct {
		name   string
		change []string
		want   int
	}{
		{"no guard", []string{"guard", ""}, 400},
		{"unknown guard", []string{"guard", "luck"}, 400},
		{"no user", []string{"user", ""}, 400},
		{"strange user", []string{"user", "4:2"}, 400},
		{"no key", []string{"once", ""}, 400},
		{"no article", []string{"sku", ""}, 400},
		{"long article", []string{"sku", strings.Repeat("x", 65)}, 400},
		{"no number", []string{"quantity", "1e3"}, 400},
		{"no duration", []string{"work", "long"}, 400},
		{"too long", []string{"work", "31s"}, 400},
		{"too large", []string{"sku", strings.Repeat("x", 64<<10)}, 413},
	} {
		got := c.tryForm(nil, tt.change...)
		t.Log(tt.name, got.body)
		requireProblem(t, tt.want, got)
		got = c.tryForm(asBrowser, tt.change...)
		require.Equal(t, tt.want, got.status)
	}
	requireProblem(t, http.StatusForbidden, c.tryForm([]string{"Sec-Fetch-Site", "cross-site"}))
	requireProblem(t, http.StatusBadRequest, c.do("GET", "/try?user=4:2", ""))
	require.Empty(t, c.orders("42"))
	require.Empty(t, c.locks())
}

// TestFormWithoutScript: after an order a browser is sent away from the form's
// address, and a refusal comes with a form that can be sent as it is.
func TestFormWithoutScript(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	first := c.tryForm(asBrowser)
	require.Equal(t, http.StatusSeeOther, first.status)
	id := c.orders("42")[0].ID
	require.Equal(t, "/?guard=both&order="+id+"&user=42", first.header.Get("Location"))
	require.Equal(t, "/?guard=both&order="+id+"&replayed=1&user=42", c.tryForm(asBrowser).header.Get("Location"))

	other := c.tryForm(asBrowser, "sku", "coffee")
	require.Equal(t, http.StatusUnprocessableEntity, other.status)
	require.Contains(t, other.body, "The key was used for a different request.")
	require.NotContains(t, other.body, `value="k"`, "the key is another form's")
	invalid := c.tryForm(asBrowser, "quantity", "0", "once", "é")
	require.Equal(t, http.StatusBadRequest, invalid.status)
	require.Contains(t, invalid.body, `value="é"`)
	require.Len(t, c.orders("42"), 1)
}

// TestLostReplies: what the page's switch does to the store is undone by each
// guard of the library, and not by the naive one.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"memory": {}, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-budget", "3s")...)
			for guard, claims := range map[string]string{
				"none": "", "lock": "lost, granted", "idempotent": "lost, granted", "both": "lost, granted, granted",
			} {
				got := c.tryForm(nil, "lose", "1", "guard", guard, "user", guard)
				require.Equal(t, http.StatusCreated, got.status, got.body)
				require.Equal(t, claims, got.header.Get("X-Claims"))
				got = c.tryForm(nil, "once", "another", "guard", guard, "user", guard)
				require.Equal(t, http.StatusCreated, got.status, got.body)
			}
			require.Eventually(t, func() bool { return len(c.locks()) == 0 }, 30*time.Second, time.Millisecond)

			require.Equal(t, http.StatusCreated, c.tryForm(nil, "guard", "naive").status)
			require.Empty(t, c.locks(), "the naive lock is right as long as every reply arrives")
			requireProblem(t, http.StatusServiceUnavailable, c.tryForm(nil, "guard", "naive", "lose", "1"))
			require.Equal(t, "unheard", c.tryForm(nil, "guard", "naive", "lose", "1").header.Get("X-Claims"), "it was no grant that was lost")
			refused := c.tryForm(nil, "guard", "naive")
			requireProblem(t, http.StatusConflict, refused)
			var seconds int
			_, err := fmt.Sscan(refused.header.Get("Retry-After"), &seconds)
			require.NoError(t, err)
			require.InDelta(t, 110, seconds, 10)
			held := c.locks()
			require.Len(t, held, 1)
			require.Equal(t, 204, c.do("DELETE", "/locks?key="+queryEscape(held[0].Key)+"&token="+queryEscape(held[0].Token), "").status)
			require.Equal(t, `{"left_ms":0,"of_ms":120000,"placed":null}`+"\n", c.do("GET", "/try?user=42", "").body)
			require.Equal(t, http.StatusCreated, c.tryForm(nil, "guard", "naive").status, "an operator has ended it")
		})
	}
}

// Tests with a browser run before all others, one at a time, though each may
// have parts that run together: a Chromium at work leaves too little of a small
// machine to tests that hold a store to its budget.

func openPage(t *testing.T, c *running, opts ...browser.Option) *browser.Page {
	t.Helper()
	p := browser.New(t, opts...)
	p.Open(c.url)
	return p
}

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
