package main_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/internal/browser"
)

// TestLooks takes pictures for people to look at, on a phone and on a desk, in
// light and in dark.
func TestLooks(t *testing.T) {
	for width, height := range map[int64]int64{390: 844, 1280: 800} {
		for scheme, opts := range map[string][]browser.Option{"light": {}, "dark": {browser.Dark()}} {
			name := fmt.Sprintf("desk-%d-%s", width, scheme)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := startDesk(t)
				p := openPage(t, c, append(opts, browser.Size(width, height))...)
				p.Expect("status of 503")
				p.Expect("status of 409")
				awaitScript(p)
				look := func(scene string) {
					require.LessOrEqual(t, browser.Eval[int64](p, `document.documentElement.scrollWidth`), width, "nothing sticks out")
					p.Screenshot(name + "-" + scene)
				}
				answered := func() {
					p.Await(`!document.querySelector(".pending") && !document.querySelector("#outcome").textContent.startsWith("Sent")`)
				}
				look("1-start")
				choose(p, "none")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				look("2-sent")
				answered()
				look("3-twice")
				choose(p, "lock")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				answered()
				choose(p, "both")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				answered()
				look("4-guarded")
				choose(p, "naive")
				p.Click("[name=lose]")
				p.Click(orderButton)
				answered()
				look("5-incident")
				choose(p, "lock")
				p.Click(orderButton)
				answered()
				look("6-recovered")
			})
		}
	}
}
