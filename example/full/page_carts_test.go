package main_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// TestCartsOnThePage: of two carts that share an item, the second is refused with the item's name, and
// placed afterwards. Carts that share nothing are placed at the same time.
func TestCartsOnThePage(t *testing.T) {
	t.Parallel()
	c := startDesk(t, "-budget", "3s")
	p := openPage(t, c, browser.Size(1280, 1000))
	p.Expect("status of 409")
	awaitScript(p)
	require.Zero(t, p.Count("#later-worker"), "this desk has no worker")
	playStory(p, "carts")
	require.Equal(t, "The second cart was refused, with the name of the item. It was placed when the first had ended.", p.Text("#carts-shared .verdict"))
	customer := customerOf(p, "carts-shared")
	require.Contains(t, p.Text("#carts-shared .try:nth-child(2)"), "The cart needs item=cup-"+customer+", which is taken.")
	require.Equal(t, 3, p.Count("#carts-shared .try"))
	require.Equal(t, "Both carts were placed at the same time.", p.Text("#carts-apart .verdict"))
	for _, customer := range []string{customer, customer + "-2", customerOf(p, "carts-apart"), customerOf(p, "carts-apart") + "-2"} {
		require.Len(t, c.orders(customer), 2, customer)
	}
	p.Screenshot("desk-carts")
}

// TestKilledWorkerOnThePage: the page shows an order that is accepted, while the worker that has it is
// killed. Another worker places it after a lease, once.
func TestKilledWorkerOnThePage(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	short := []string{"-postgres", db.url, "-lease", "4s", "-budget", "2s"}
	c := startDesk(t, short...)
	victim := startProcess(t, append(short, "-worker", "-work", "30s")...)
	p := openPage(t, c, browser.Size(1280, 1000))
	awaitScript(p)
	p.Click(`[data-plays="later-worker"]`)
	p.AwaitText("#later-worker .try", "Accepted")
	require.Eventually(t, func() bool {
		return db.count(t, "SELECT count(*) FROM latch_entries WHERE receipt IS NULL AND token <> '' AND key LIKE 'once:%'") == 1
	}, 10*time.Second, time.Millisecond)
	victim.kill(t)
	startProcess(t, append(short, "-worker", "-work", "0s")...)
	p.AwaitText("#later-worker .verdict", "1 order: accepted at once, and placed by a worker after")
	require.Len(t, c.orders(customerOf(p, "later-worker")), 1)
	require.Equal(t, 2, p.Count("#later-worker .try"))
	p.Screenshot("desk-later")
}
