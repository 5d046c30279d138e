package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// TestVerdictCountsItsClicksOnly: the user has orders that the page's clicks did not place. The
// verdict does not count them.
func TestVerdictCountsItsClicksOnly(t *testing.T) {
	const once, twice = "2 clicks, 1 order: both clicks got its number.", "2 clicks, 2 orders: the customer pays twice."
	for name, tt := range map[string]struct {
		guard   string
		when    string // the other client orders
		orders  int    // of the two clicks
		verdict string
	}{
		"user typed":              {"both", "before the user is typed", 1, once},
		"user typed, no guard":    {"none", "before the user is typed", 2, twice},
		"before the clicks":       {"both", "before the clicks", 1, once},
		"during them":             {"idempotent", "during the clicks", 1, once},
		"during them, no guard":   {"none", "during the clicks", 2, twice},
		"before them, naive lock": {"naive", "before the clicks", 1, "2 clicks, 1 order: the second click was refused."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, "-work", "0s")
			p := openPage(t, c)
			p.Expect("status of 409")
			awaitScript(p)
			dawdle(p)
			choose(p, tt.guard)
			user := "42"
			others := func(when string) {
				if tt.when == when {
					for range 2 {
						require.Equal(t, 201, c.order(user).status)
					}
				}
			}
			if tt.when == "before the user is typed" {
				user = "43"
				others(tt.when)
				p.Type("[name=user]", user)
			}
			others("before the clicks")
			p.ClickTwice(orderButton, 30*time.Millisecond)
			others("during the clicks")
			p.AwaitText("#outcome", "2 clicks")
			require.Equal(t, tt.verdict, p.Text("#outcome"))
			require.Len(t, c.orders(user), 2+tt.orders)
			require.Equal(t, tt.orders, p.Count("#orders li.new"))
		})
	}
}

// TestBurstsAreNoted: the desk notes the orders of each burst of clicks under the
// name that their forms bear, and no replays.
func TestBurstsAreNoted(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	placed := func(burst string) (ids []string) {
		var got struct{ Placed []string }
		require.NoError(t, json.Unmarshal([]byte(c.do("GET", "/try?user=42&burst="+burst, "").body), &got))
		return got.Placed
	}
	long := strings.Repeat("x", 65)
	for _, burst := range []string{"a", "a", "b", "", long} {
		require.Equal(t, 201, c.tryForm([]string{"X-Burst", burst}, "guard", "lock").status)
	}
	for range 2 {
		require.Equal(t, 201, c.tryForm([]string{"X-Burst", "c"}, "guard", "both").status)
	}
	orders := c.orders("42")
	require.Len(t, orders, 6)
	require.Equal(t, []string{orders[0].ID, orders[1].ID}, placed("a"))
	require.Equal(t, []string{orders[2].ID}, placed("b"))
	require.Equal(t, []string{orders[5].ID}, placed("c"))
	require.Empty(t, placed(long))
	require.Empty(t, placed(""))
}

// TestAnotherFormIsAnotherVerdict: a customer who changes the quantity while the first order is
// on its way wants two orders, and pays for two.
func TestAnotherFormIsAnotherVerdict(t *testing.T) {
	c := startDesk(t, "-work", "0s")
	p := openPage(t, c)
	awaitScript(p)
	dawdle(p)
	choose(p, "idempotent")
	p.Click(orderButton)
	p.Type("[name=quantity]", "7")
	p.Press(browser.Enter)
	p.Await(`!document.querySelector(".pending") && !document.querySelector("#outcome").textContent.startsWith("Sent")`)
	require.Len(t, c.orders("42"), 2)
	require.Equal(t, "1 click, 1 order.", p.Text("#outcome"))
	require.Equal(t, 2, p.Count(".burst.good"))
}

// TestRunningOrderIsNoLockout: the page says "locked out" of a naive lock that was lost, and not
// of one whose order is under way in another window.
func TestRunningOrderIsNoLockout(t *testing.T) {
	c := startDesk(t, "-budget", "3s")
	p := openPage(t, c)
	p.Expect("status of 409")
	awaitScript(p)
	other := make(chan reply, 1)
	go func() { other <- c.tryForm(nil, "guard", "naive", "work", "8s") }()
	c.awaitLock("naive=42")
	choose(p, "naive")
	p.Click(orderButton)
	p.AwaitText("#outcome", "1 click, no order. Your order is already being processed.")
	require.Zero(t, p.Count("#lockout:not([hidden])"))
	require.Equal(t, 201, (<-other).status)
}
