package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/internal/browser"
	"github.com/httplatch/httplatch/internal/redistest"
)

// TestIncidentOnThePage is the incident that the library was made for, with the
// reply to a claim really lost: the naive lock keeps its user out, and Lock
// serves the same user at once.
func TestIncidentOnThePage(t *testing.T) {
	for name, args := range map[string][]string{"memory": {}, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-budget", "3s")...)
			p := openPage(t, c)
			p.Expect("status of 503")
			p.Expect("status of 409")
			awaitScript(p)
			p.Click("[name=work]")

			choose(p, "naive")
			p.Click("[name=lose]")
			p.Click(orderButton)
			p.AwaitText("#outcome", "1 click, no order. The lock was taken and its answer lost: this user is locked out.")
			require.Contains(t, p.Text(".try"), "claim granted, but its reply lost")
			left := p.Text("#left")
			require.Regexp(t, `^(2:00|1:\d\d)$`, left)
			p.Await(`document.querySelector("#left").innerText !== "` + left + `"`)

			p.Click("[name=lose]")
			p.Click(orderButton)
			p.AwaitText(".try", "Your order is already being processed.")
			p.AwaitText("#outcome", "All answers arrive again, and this user is still locked out.")
			require.Empty(t, c.orders("42"), "every reply arrives again, and still no order")
			require.Equal(t, "held", c.awaitLock("naive=42").State)

			p.Reload()
			awaitScript(p)
			p.AwaitText("#lockout", "Locked out, with no order running.")
			p.Click("[name=work]")
			for i, guard := range []string{"lock", "idempotent", "both"} {
				choose(p, guard)
				if i == 0 {
					p.Click("[name=lose]")
				}
				p.Click(orderButton)
				p.AwaitText("#outcome", "1 click, 1 order. A reply was lost, and the lock was claimed again at once.")
				require.Contains(t, p.Text(".try"), "claim granted, but its reply lost → claim granted")
				require.Len(t, c.orders("42"), i+1)
				p.Type("[name=quantity]", "2") // another form
			}
		})
	}
}

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
	require.Contains(t, p.Text("#lockout"), "Locked out, with no order running.")
	p.Screenshot("desk-noscript-incident")
	require.Empty(t, c.orders("42"))
	choose(p, "lock")
	p.Follow(func() { p.Click(orderButton) })
	require.Contains(t, p.Text("#outcome"), "is placed", "the reply to its claim is lost as well")
	require.Len(t, c.orders("42"), 1)
}
