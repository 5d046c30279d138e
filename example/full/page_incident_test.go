package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// testLockoutWithoutJavaScript: a user without scripts sees the outcome too.
func testLockoutWithoutJavaScript(t *testing.T) {
	t.Helper()
	c := startDesk(t, "-work", "0s", "-budget", "3s")
	p := openPage(t, c, browser.NoScript(), browser.Size(390, 844))
	p.Expect("status of 503")
	choose(p, "naive")
	p.Click("[name=lose]")
	p.Follow(func() { p.Click(orderButton) })
	require.Contains(t, p.Text("#outcome"), "503: The lock could not be taken. Please try again.")
	require.Contains(t, p.Text("#lockout"), "This customer is locked out, and no order is running.")
	p.Screenshot("desk-noscript-incident")
	require.Empty(t, c.orders("42"))
	choose(p, "lock")
	p.Follow(func() { p.Click(orderButton) })
	require.Contains(t, p.Text("#outcome"), "is placed", "the reply to its claim is lost as well")
	require.Len(t, c.orders("42"), 1)
}
