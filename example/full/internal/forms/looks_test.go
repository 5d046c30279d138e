package forms_test

import (
	"flag"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	latch "github.com/httplatch/httplatch/middleware"
)

var allLooks = flag.Bool("looks.all", false, "look at all pages on both screens in both schemes")

func screens() map[string][]browser.Option {
	few := map[string][]browser.Option{
		"390-light": {browser.Size(390, 844)},
		"1280-dark": {browser.Size(1280, 800), browser.Dark()},
	}
	if *allLooks {
		few["390-dark"] = []browser.Option{browser.Size(390, 844), browser.Dark()}
		few["1280-light"] = []browser.Option{browser.Size(1280, 800)}
	}
	return few
}

const siteStyle = `:root { color-scheme: light dark; }
body { font: 1.125rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 12vh auto 3rem; padding: 0 1.25rem;
  color: light-dark(#1b1d21, #e7e9ee); background: light-dark(#fff, #15171b); }
form { display: grid; gap: 1rem; justify-items: start; }
label { display: grid; gap: .25rem; width: 100%; }
input, button { font: inherit; padding: .5rem .75rem; }
button[aria-disabled=true] { opacity: .55; cursor: progress; }
a { color: light-dark(#1a56c4, #8db4ff); }`

// TestLooksUnderWay: the form at rest and under way, in the eyes of axe, and in pictures for
// people.
func TestLooksUnderWay(t *testing.T) {
	t.Parallel()
	for name, opts := range screens() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, plan{style: siteStyle, policy: strictPolicy + "; style-src 'self'"})
			p := browser.New(t, opts...)
			p.Open(s.url + "/new")
			w := walk{t, p, s}
			w.fill()
			p.LoadAxe()
			eye := p.OpenTab("about:blank")
			require.Empty(t, eye.Violations("opener"))
			p.Screenshot("form-" + name + "-1-rest")
			w.held()
			eye.Await(`opener.document.querySelector("button[aria-disabled=true]")`)
			require.Empty(t, eye.Violations("opener"))
			p.ScreenshotView("form-" + name + "-2-under-way")
			p.Stop()
			p.Await(`!document.querySelector("[aria-disabled]")`)
			p.Screenshot("form-" + name + "-3-stopped")
		})
	}
}

// TestAxeFinds: a page with what axe looks for.
func TestAxeFinds(t *testing.T) {
	t.Parallel()
	s := openShop(t, plan{form: `<form><input name="sku"><button></button></form>`})
	p := browser.New(t)
	p.Open(s.url + "/new")
	p.LoadAxe()
	found := strings.Join(p.Violations("window"), "\n")
	require.Contains(t, found, "label: ")
	require.Contains(t, found, "button-name: ")
}

// kinds are the sections of docs/problems.md.
func kinds(t *testing.T) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/problems.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		all = append(all, m[1])
	}
	require.NotEmpty(t, all)
	return all
}

// TestLooksRefused: pages of the middleware, with their button if they have one.
func TestLooksRefused(t *testing.T) {
	t.Parallel()
	site := startRefusing(t, "", nil, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		of := *p
		of.Type, of.RetryAfter = problemTypes+r.URL.Query().Get("kind"), 90*time.Second
		of.ServeHTTP(w, r)
	}))
	for name, opts := range screens() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := browser.New(t, opts...)
			p.Expect("status of")
			for _, kind := range kinds(t) {
				if !*allLooks && kind != "in-progress" && kind != "cooling-down" {
					continue // pages differ in their words, and in whether they have a button
				}
				p.Open(site + "/?kind=" + kind)
				p.Follow(func() { p.Click("button") })
				require.Equal(t, 1, p.Count("meta[name=latch-problem][content="+kind+"]"))
				require.LessOrEqual(t, browser.Eval[int](p, `document.documentElement.scrollWidth - innerWidth`), 0, "nothing sticks out")
				p.LoadAxe()
				require.Empty(t, p.Violations("window"), kind)
				p.Screenshot("refused-" + name + "-" + kind)
			}
		})
	}
}
