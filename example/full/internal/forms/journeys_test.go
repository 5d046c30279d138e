package forms_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// The journeys end with an answer. Each returns how often the form was sent.
var journeys = map[string]func(w walk, sends int){
	"double click": func(w walk, sends int) {
		w.twice(w.Aim("button"), sends)
	},
	"fast double click": func(w walk, _ int) {
		w.Follow(func() { w.ClickTwice("button", 30*time.Millisecond) })
		w.thanks()
	},
	"Enter twice": func(w walk, sends int) {
		w.twice(func() { w.Press(browser.Enter) }, sends)
	},
	"Space twice": func(w walk, sends int) {
		w.Press(browser.Tab)
		w.twice(func() { w.Press(browser.Space) }, sends)
	},
	"slow network: three more clicks": func(w walk, sends int) {
		w.shop.hold()
		click := w.Aim("button")
		w.Follow(func() {
			for n := range 4 {
				click()
				w.shop.sent(w.T, min(n+1, sends))
			}
			w.shop.release()
		})
		w.thanks()
	},
	"reload while it is sent, and again": func(w walk, _ int) {
		w.Follow(func() {
			w.held()
			w.PressReload()
		})
		w.shop.release()
		w.again()
	},
	"another link while it is sent, and again": func(w walk, _ int) {
		link := w.Aim("a")
		w.Follow(func() {
			w.held()
			link()
		})
		w.shop.release()
		w.again()
	},
	"the answer is lost: back, and again": func(w walk, _ int) {
		w.unanswered()
		w.Back()
		w.again()
	},
	"the answer is lost: back, reload, and again": func(w walk, _ int) {
		w.unanswered()
		w.Back()
		w.Reload()
		w.again()
	},
	"the answer is lost: reload": func(w walk, _ int) {
		w.unanswered()
		w.Reload()
		w.thanks()
	},
	"the tab crashes, and is restored": func(w walk, _ int) {
		w.unanswered()
		w.Back()
		w.Crash()
		w.PressReload()
		w.again()
	},
	"stopped, and again": func(w walk, _ int) {
		click := w.held()
		w.Stop()
		w.Await(`!document.querySelector("[aria-disabled]")`)
		w.Follow(func() {
			click()
			w.shop.sent(w.T, 2)
			w.shop.release()
		})
		w.thanks()
	},
	"stopped, and again in a copy of the tab": func(w walk, _ int) {
		w.held()
		w.Stop()
		w.shop.left(w.T) // an answer before that leaves its cookie, though no user has seen it
		w.shop.release()
		walk{w.T, w.OpenTab(w.shop.url + "/new"), w.shop}.again()
	},
	"given up: the address is typed in, and again":         func(w walk, _ int) { w.typed(muse) },
	"given up at once: the address is typed in, and again": func(w walk, _ int) { w.typed(0) },
	"offline: back, and again": func(w walk, _ int) {
		w.Offline(true)
		w.Follow(func() { w.Click("button") })
		w.Offline(false)
		w.Back()
		w.again()
	},
}

// walks are journeys of one kind of shop, one after the other in one tab.
type walks struct {
	plan plan
	opts []browser.Option
	done []outcome
}

type outcome struct {
	journey string
	posts   int // 0: as many as the browser likes; it repeats some itself when a connection breaks
	orders  int // 1, or at least so many
}

var (
	withScript = plan{}
	scriptless = plan{noScript: true}
	keyless    = plan{noScript: true, noField: true, noGuard: true}
)

var allWalks = map[string]walks{
	"script": {withScript, nil, []outcome{
		{"double click", 1, 1},
		{"fast double click", 1, 1},
		{"Enter twice", 1, 1},
		{"Space twice", 1, 1},
		{"slow network: three more clicks", 1, 1},
		{"reload while it is sent, and again", 2, 1},
		{"another link while it is sent, and again", 2, 1},
		{"the answer is lost: back, and again", 0, 1},
		{"the answer is lost: back, reload, and again", 0, 1},
		{"the answer is lost: reload", 0, 1},
		{"offline: back, and again", 1, 1},
		{"stopped, and again", 2, 1},
		{"stopped, and again in a copy of the tab", 2, 1},
		{"given up: the address is typed in, and again", 2, 1},
		{"given up at once: the address is typed in, and again", 2, 1},
	}},
	// In a browser of its own: the crash ends copies of the tab, and later copies may have no
	// storage.
	"script, in a tab that crashes": {withScript, nil, []outcome{{"the tab crashes, and is restored", 0, 1}}},
	"script without field": {plan{noField: true}, nil, []outcome{
		{"double click", 1, 1},
		{"the answer is lost: back, reload, and again", 0, 1},
		{"stopped, and again", 2, 1},
	}},
	"script, in a browser's cache": {plan{cached: true}, nil, []outcome{{"the answer is lost: back, and again", 0, 1}}},
	"JavaScript is off": {withScript, []browser.Option{browser.NoScript()}, []outcome{
		{"double click", 2, 1},
		{"Enter twice", 2, 1},
		{"slow network: three more clicks", 4, 1},
		{"the answer is lost: reload", 0, 1},
	}},
	// What orders twice with less shows that the same check can fail.
	"field only": {scriptless, nil, []outcome{
		{"reload while it is sent, and again", 2, 2},
		{"another link while it is sent, and again", 2, 2},
		{"the answer is lost: back, reload, and again", 0, 2},
		{"stopped, and again in a copy of the tab", 2, 2},
		{"given up: the address is typed in, and again", 2, 2},
	}},
	"no guard": {plan{noGuard: true}, nil, []outcome{
		{"the answer is lost: back, and again", 0, 2},
		{"stopped, and again", 2, 2},
	}},
	"nothing": {keyless, []browser.Option{browser.NoScript()}, []outcome{
		{"double click", 2, 2},
		{"Enter twice", 2, 2},
		{"Space twice", 2, 2},
		{"slow network: three more clicks", 4, 4},
		{"the answer is lost: reload", 0, 2},
	}},
}

// TestJourneys: what people do with a form is one order with the script; and the same with
// less is two.
func TestJourneys(t *testing.T) {
	t.Parallel()
	for name, ws := range allWalks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := browser.New(t, ws.opts...)
			p.Expect("net::ERR_")
			for _, want := range ws.done {
				t.Log(want.journey)
				s := openShop(t, ws.plan) // has an origin of its own, and so a storage
				p.Open(s.url + "/new")
				w := walk{t, p, s}
				w.fill()
				journeys[want.journey](w, want.posts)
				if want.orders == 1 {
					require.EqualValues(t, 1, s.orders.Load(), want.journey)
				} else {
					require.GreaterOrEqual(t, int(s.orders.Load()), want.orders, "%s: this check can fail", want.journey)
				}
				if want.posts > 0 {
					require.Len(t, s.sent(t, 0), want.posts, want.journey)
				}
			}
		})
	}
}

// TestScriptComesLate: who clicks before the script is there sends the key of the field. Chromium
// then gives the script up, so the second click does too.
func TestScriptComesLate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plan   plan
		orders int
	}{
		"field":    {plan{lateScript: true}, 1},
		"no field": {plan{lateScript: true, noField: true, noGuard: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, tt.plan)
			p := browser.New(t)
			browser.Eval[bool](p, `(location.href = "`+s.url+`/new", true)`) // Open would wait for the script
			w := walk{t, p, s}
			w.fill()
			require.False(t, browser.Eval[bool](p, "!!window.latch"))
			w.twice(w.Aim("button"), 2)
			require.EqualValues(t, tt.orders, s.orders.Load())
		})
	}
}

// TestRestoredSession: the answer is lost, and the user closes the browser, which brings the tab
// back when it is opened again.
func TestRestoredSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plan   plan
		orders int
	}{
		"script":     {withScript, 1},
		"field only": {scriptless, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, tt.plan)
			session := browser.NewSession(t, s.url+"/new")
			session.Page().Expect("net::ERR_")
			w := walk{t, session.Page(), s}
			w.fill()
			w.unanswered()
			w.Back()
			session.Restart(s.url + "/new")
			walk{t, session.Page(), s}.again()
			require.EqualValues(t, tt.orders, s.orders.Load())
		})
	}
}

// walk is a person at the form of a shop.
type walk struct {
	*testing.T
	*browser.Page

	shop *shop
}

// openWalk opens a shop, and fills in its form. Errors with these texts may be in the console.
func openWalk(t *testing.T, p plan, expected ...string) walk {
	t.Helper()
	s := openShop(t, p)
	w := walk{t, browser.New(t), s}
	for _, text := range expected {
		w.Expect(text)
	}
	w.Open(s.url + "/new")
	w.fill()
	return w
}

func startWalk(t *testing.T, p plan) walk {
	t.Helper()
	return openWalk(t, p, "status of", "net::ERR_")
}

func (w walk) fill() {
	w.Helper()
	w.AwaitText("h1", "New order")
	w.Type("[name=sku]", "tea")
}

func (w walk) thanks() {
	w.Helper()
	w.AwaitText("h1", "Thank you for order")
}

func (w walk) again() {
	w.Helper()
	w.fill()
	w.send()
	w.thanks()
}

func (w walk) next(n int) {
	w.Helper()
	w.Follow(func() { w.Click("p a") })
	w.again()
	require.EqualValues(w.T, n, w.shop.orders.Load())
}

// held sends the form by a click, and returns when the server has it, and no answer yet.
func (w walk) held() (click func()) {
	w.Helper()
	n := len(w.shop.sent(w.T, 0))
	click = w.Aim("button")
	w.shop.hold()
	click()
	w.shop.sent(w.T, n+1)
	return click
}

func (w walk) send() {
	w.Helper()
	w.Follow(func() { w.Click("button") })
}

// twice does what sends the form, and does it again while the server has no answer yet. A
// browser whose first request is not on its way yet would send one only.
func (w walk) twice(send func(), sends int) {
	w.Helper()
	w.shop.hold()
	w.Follow(func() {
		send()
		w.shop.sent(w.T, 1)
		send()
		w.shop.sent(w.T, sends)
		w.shop.release()
	})
	w.thanks()
}

// unanswered sends the form, whose order is placed, and whose answer is lost.
func (w walk) unanswered() {
	w.Helper()
	w.shop.lose.Store(true)
	w.send()
	w.shop.lose.Store(false)
}

func TestMain(m *testing.M) {
	testmain.AtOnce(3)
	goleak.VerifyTestMain(browser.Main(m))
}
