package main_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// TestReloadAndBack: no way through the history makes a second order, with and
// without JavaScript, not even with another click on what it leads back to.
func TestReloadAndBack(t *testing.T) {
	for _, guard := range []string{"idempotent", "both"} {
		t.Run(guard+" without JavaScript", func(t *testing.T) {
			t.Parallel()
			c := startDesk(t)
			p := openPage(t, c, browser.NoScript())
			choose(p, guard)
			p.Follow(func() { p.Click(orderButton) })
			id := c.orders("42")[0].ID
			require.Contains(t, p.Text("#outcome"), "Order "+id[:6]+" is placed.")
			require.Contains(t, p.Text("#orders"), id[:6])
			p.Reload()
			require.Contains(t, p.Text("#outcome"), id[:6])
			require.Len(t, c.orders("42"), 1)
			p.Back()
			require.Equal(t, "Nothing yet.", p.Text("#outcome"))
			require.Len(t, c.orders("42"), 1)
			p.Follow(func() { p.Click(orderButton) })
			require.Contains(t, p.Text("#outcome"), "This form had been sent before")
			require.Contains(t, p.Text("#outcome"), id[:6])
			require.Len(t, c.orders("42"), 1)
		})
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t)
			p := openPage(t, c)
			awaitScript(p)
			p.Click(orderButton)
			p.AwaitText("#outcome", "1 click, 1 order.")
			p.Follow(func() { p.Click("nav a") })
			p.Back()
			awaitScript(p)
			require.Len(t, c.orders("42"), 1)
			p.Click(orderButton)
			p.AwaitText("#outcome", "1 click, no order: this form had been sent before")
			p.Reload()
			awaitScript(p)
			require.Len(t, c.orders("42"), 1)
		})
	}
}

// TestWithoutJavaScript: a form that its browser sends by itself.
func TestWithoutJavaScript(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"double click": testDoubleClickWithoutJavaScript,
		"refusal":      testRefusalWithoutJavaScript,
		"lockout":      testLockoutWithoutJavaScript,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// testDoubleClickWithoutJavaScript: the browser gives up its first submission
// when the second is clicked, and shows the answer to that one only.
func testDoubleClickWithoutJavaScript(t *testing.T) {
	t.Helper()
	c := startDesk(t)
	p := openPage(t, c, browser.NoScript())
	require.False(t, browser.Eval[bool](p, `document.querySelector("#stage").checkVisibility()`), "the stories need the script")
	dawdle(p)
	p.Follow(func() { p.ClickTwice(orderButton, 30*time.Millisecond) })
	orders := c.orders("42")
	require.Len(t, orders, 1)
	require.Contains(t, p.Text("#outcome"), orders[0].ID[:6])
}

// testRefusalWithoutJavaScript: a refusal is a page that says why, with the
// form as it was, to be sent again.
func testRefusalWithoutJavaScript(t *testing.T) {
	t.Helper()
	c := startDesk(t)
	p := openPage(t, c, browser.NoScript())
	p.Expect("status of 409")
	leave := c.hang("42", "X-Fail", "hang")
	p.Type("[name=sku]", `"coffee" & <b>`)
	p.Follow(func() { p.Click(orderButton) })
	require.Contains(t, p.Text("#outcome"), "409: Another request for the same thing is still being processed.")
	p.Screenshot("desk-noscript-refused")
	leave()
	require.Eventually(t, func() bool { return len(c.locks()) == 0 }, 10*time.Second, time.Millisecond)
	require.Len(t, c.orders("42"), 1)
	p.Follow(func() { p.Click(orderButton) })
	require.Contains(t, p.Text("#outcome"), "is placed")
	orders := c.orders("42")
	require.Len(t, orders, 2)
	require.Equal(t, `"coffee" & <b>`, orders[1].SKU)
}
