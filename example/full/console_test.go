package main_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// busy has a desk with one order that is being worked on until t ends.
func busy(t *testing.T, user string, args ...string) *running {
	t.Helper()
	c := startDesk(t, args...)
	c.hang(user, "X-Fail", "hang")
	return c
}

// Why can't user 42 order? Looked up, read and put right without a mouse.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]browser.Option{"with JavaScript": nil, "without": {browser.NoScript()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := busy(t, "42")
			p := browser.New(t, opts...)
			p.Open(c.url + "/console")
			focus(p, "#q")
			p.Press("user=42")
			p.Follow(func() { p.Press(browser.Enter) })
			require.Contains(t, p.Text(".entries p"), "Running for ")
			focus(p, ".entries a")
			p.Follow(func() { p.Press(browser.Enter) })
			require.Equal(t, "user=42", p.Text("h1"))

			focus(p, "#confirm")
			p.Press("43")
			p.Expect("status of 422")
			p.Follow(func() { p.Press(browser.Enter) })
			require.Contains(t, p.Text("#mistake"), "Nothing was freed.")
			require.Len(t, c.locks(), 1)

			focus(p, "#confirm")
			p.Press("42", browser.Tab)
			require.Equal(t, "Free this key", browser.Eval[string](p, "document.activeElement.innerText"))
			p.Follow(func() { p.Press(browser.Enter) })
			require.Contains(t, p.Text(".good"), "Freed.")
			require.Empty(t, c.locks())

			p.Expect("status of 404")
			p.Reload()
			require.Equal(t, "It is gone already.", p.Text("h1"))
		})
	}
}

// focus moves the focus, by the tab key alone, to what selector finds first, and
// checks that it can be seen there.
func focus(p *browser.Page, selector string) {
	at := func() bool {
		return browser.Eval[bool](p, "document.activeElement === document.querySelector('"+selector+"')")
	}
	for range 30 {
		if at() {
			break
		}
		p.Press(browser.Tab)
	}
	p.Await("document.activeElement === document.querySelector('" + selector + "')")
	p.Await("getComputedStyle(document.activeElement).outlineStyle === 'solid'")
}

// What users call themselves stays text in a real browser, and no page of another
// site can free anything.
func TestConsoleInTheBrowserIsSafe(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-work", "0s", "-cooldown", "1h")
	// What the desk takes as a user, and what a worker with its own key would.
	require.Equal(t, 201, c.order("a&lt=/script&b~|").status)
	p := browser.New(t)
	for _, query := range []string{
		"", "?q=" + url.QueryEscape(`"><script>document.title="hacked"</script><img src=x onerror="document.title='hacked'">`),
		"?key=" + url.QueryEscape(`<svg/onload="document.title='hacked'">`),
	} {
		p.Open(c.url + "/console" + query)
		require.NotEqual(t, "hacked", browser.Eval[string](p, "document.title"))
		require.Zero(t, p.Count("script, img, svg, iframe, [onload], [onerror]"))
		require.NotEqual(t, "rgba(0, 0, 0, 0)", browser.Eval[string](p, "getComputedStyle(document.body).backgroundColor"), "the style sheet is there")
	}

	held := c.locks()[0]
	fields := map[string]string{"key": encoded(held.Key), "token": encoded(held.Token), "confirm": held.Key}
	var form strings.Builder
	for name, value := range fields {
		form.WriteString(`<input type="hidden" name="` + name + `" value="` + value + `">`)
	}
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>Win</title><link rel="icon" href="data:,">
			<form method="post" action="%s/console">%s<button>Win</button></form>`, c.url, form.String())
	}))
	t.Cleanup(evil.Close)
	p = browser.New(t)
	p.Open(evil.URL)
	p.Expect("status of 403")
	p.Follow(func() { p.Click("button") })
	require.Equal(t, "This request came from another site.", p.Text("h1"))
	require.Equal(t, held.Token, c.locks()[0].Token, "though it knew the token")
}

func encoded(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// The browser reads the pages as they were written: it mends nothing.
func TestConsoleIsReadAsWritten(t *testing.T) {
	t.Parallel()
	c := busy(t, "42", "-cooldown", "1h")
	require.Equal(t, 201, c.order("43").status)
	for _, query := range []string{"", "?answers=1&limit=1", "?q=user", "?key=user%3D42", "?key=user%3D43", "?key=unused", "?id=1&path=no"} {
		page := c.do("GET", "/console"+query, "", "Accept", "text/html").body
		require.Equal(t, written(t, page), parsed(t, page), query)
	}
	broken := "<!DOCTYPE html><html><head></head><body><p><ul></ul></p></body></html>"
	require.NotEqual(t, written(t, broken), parsed(t, broken))
}

// written is the tags of a page in the order in which they are in it, and parsed
// those of the tree that HTML's rules make of it.
func written(t *testing.T, page string) string {
	t.Helper()
	var b strings.Builder
	for z := html.NewTokenizer(strings.NewReader(page)); z.Next() != html.ErrorToken; {
		token := z.Token()
		if token.Type == html.StartTagToken || token.Type == html.SelfClosingTagToken {
			b.WriteString("<" + token.Data)
		}
		if token.Type == html.EndTagToken || token.Type == html.SelfClosingTagToken {
			b.WriteString(">")
		}
	}
	return b.String()
}

func parsed(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	var b strings.Builder
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			b.WriteString("<" + n.Data)
			defer b.WriteString(">")
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(root)
	return b.String()
}
