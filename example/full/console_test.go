package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
