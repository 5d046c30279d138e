package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
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
			p.AwaitText("#outcome", "1 click, no order: a packet was lost, and the customer is locked out for 2 minutes.")
			require.Contains(t, p.Text(".burst .try"), "The lock was taken, and the reply was lost: the server does not know.")
			left := p.Text("#lockout .clock")
			require.Regexp(t, `^(2:00|1:\d\d)$`, left)
			p.Await(`document.querySelector("#lockout .clock").innerText !== "` + left + `"`)

			p.Click("[name=lose]")
			p.Click(orderButton)
			p.AwaitText(".burst .try", "Your order is already being processed.")
			p.AwaitText("#outcome", "1 click, no order: no packet is lost any more, and the customer is still locked out.")
			require.Empty(t, c.orders("42"), "every reply arrives again, and still no order")
			require.Equal(t, "held", c.awaitLock("naive=42").State)

			p.Reload()
			awaitScript(p)
			p.AwaitText("#lockout", "This customer is locked out, and no order is running.")
			p.Click("[name=work]")
			for i, guard := range []string{"lock", "idempotent", "both"} {
				choose(p, guard)
				if i == 0 {
					p.Click("[name=lose]")
				}
				p.Click(orderButton)
				p.AwaitText("#outcome", "1 click, 1 order: a packet was lost, and the server asked again.")
				require.Contains(t, p.Text(".burst .try"), "The reply was lost. The server asked again, and has the lock.")
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
	require.Contains(t, p.Text("#lockout"), "This customer is locked out, and no order is running.")
	p.Screenshot("desk-noscript-incident")
	require.Empty(t, c.orders("42"))
	choose(p, "lock")
	p.Follow(func() { p.Click(orderButton) })
	require.Contains(t, p.Text("#outcome"), "is placed", "the reply to its claim is lost as well")
	require.Len(t, c.orders("42"), 1)
}
