package main_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// TestLooks takes pictures for people to look at, on a phone and on a desk, in
// light and in dark, and has axe look at each.
func TestLooks(t *testing.T) {
	for width, height := range map[int64]int64{375: 667, 1280: 1040} {
		for scheme, opts := range map[string][]browser.Option{"light": {}, "dark": {browser.Dark()}} {
			name := fmt.Sprintf("desk-%d-%s", width, scheme)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := startDesk(t)
				p := openPage(t, c, append(opts, browser.Size(width, height))...)
				p.Expect("status of 503")
				p.Expect("status of 409")
				awaitScript(p)
				p.LoadAxe()
				look := func(scene string) {
					require.LessOrEqual(t, browser.Eval[int64](p, `document.documentElement.scrollWidth`), width, "nothing sticks out")
					require.Empty(t, p.Violations("window"), scene)
					p.ScreenshotView(name + "-" + scene + "-view")
					p.Screenshot(name + "-" + scene)
				}
				answered := func() {
					p.Await(`!document.querySelector(".pending") && !document.querySelector("#outcome").textContent.startsWith("Sent")`)
				}
				look("1-start")
				playStory(p, "double-none")
				look("2-double")
				playStory(p, "lost-naive")
				look("3-lost")
				playStory(p, "double-ours")
				look("4-stage")
				choose(p, "none")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				look("5-sent")
				answered()
				choose(p, "both")
				p.ClickTwice(orderButton, 150*time.Millisecond)
				answered()
				choose(p, "naive")
				p.Click("[name=lose]")
				p.Click(orderButton)
				answered()
				look("6-incident")
				choose(p, "lock")
				p.Click(orderButton)
				answered()
				look("7-recovered")
			})
		}
	}
}
