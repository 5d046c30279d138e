package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

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

var looks = map[string][]browser.Option{
	"390":       {browser.Size(390, 844)},
	"390-dark":  {browser.Size(390, 844), browser.Dark()},
	"1280":      {browser.Size(1280, 800)},
	"1280-dark": {browser.Size(1280, 800), browser.Dark()},
}

// TestConsoleScreens makes the pictures that are looked at, and checks that
// nothing sticks out of them.
func TestConsoleScreens(t *testing.T) {
	t.Parallel()
	c := busy(t, "42", "-cooldown", "1h")
	require.Equal(t, 201, c.order("43", "Idempotency-Key", "8e03978e").status)
	require.Equal(t, 201, c.order(strings.Repeat("a-long-name_", 10)).status)
	for name, opts := range looks {
		p := browser.New(t, opts...)
		for view, query := range map[string]string{
			"list": "?answers=1", "held": "?key=user%3D42", "cooldown": "?key=user%3D43",
		} {
			p.Open(c.url + "/console" + query)
			require.LessOrEqual(t, browser.Eval[int](p, "document.documentElement.scrollWidth"), browser.Eval[int](p, "innerWidth"), name+" "+view)
			p.Screenshot("console-" + view + "-" + name)
		}
		p.Open(c.url + "/console?key=user%3D42")
		p.Type("#confirm", "no")
		p.Expect("status of 422")
		p.Follow(func() { p.Press(browser.Enter) })
		p.Screenshot("console-mistake-" + name)
	}
}

// With the store away the console says that everybody is refused, and why: not that there
// is nothing for user 42. It names nothing that only a developer knows.
func TestConsoleWithTheStoreAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := startDesk(t, "-redis", server.URL(), "-budget", "200ms")
	require.Equal(t, http.StatusCreated, d.order("43", "X-Work", "0s").status)
	server.Stop()
	t.Cleanup(server.Cont)
	for name, opts := range looks {
		p := browser.New(t, opts...)
		for view, query := range map[string]string{"away": "?q=42", "away-key": "?key=user%3D42"} {
			p.Expect("status of 503")
			p.Open(d.url + "/console" + query)
			text := browser.Eval[string](p, "document.body.innerText")
			require.Contains(t, text, "every customer is refused")
			require.Contains(t, text, "(silent)")
			require.NotContains(t, text, "42 is free")
			require.NotContains(t, text, "Nothing.")
			require.NotRegexp(t, `lock\.|With[A-Z]`, text)
			require.LessOrEqual(t, browser.Eval[int](p, "document.documentElement.scrollWidth"), browser.Eval[int](p, "innerWidth"), name+" "+view)
			p.Screenshot("console-" + view + "-" + name)
		}
	}
}
