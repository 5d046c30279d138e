package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// playStory plays the story that begins with a scene, and returns when it has ended.
func playStory(p *browser.Page, scene string) {
	p.Click(`button[data-plays^="` + scene + `"]:not(.all)`)
	p.Await(`!document.querySelector("[aria-busy=true]")`)
}

// customerOf returns the customer of a scene, whose orders it has a link to.
func customerOf(p *browser.Page, scene string) string {
	return browser.Eval[string](p, `new URL(document.querySelector("#`+scene+` .proof").href).searchParams.get("user")`)
}

// TestStories: what the stage says of each scene is true of the desk.
func TestStories(t *testing.T) {
	for name, args := range map[string][]string{"memory": {}, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-budget", "3s")...)
			p := openPage(t, c)
			p.Expect("status of 503")
			p.Expect("status of 409")
			awaitScript(p)

			p.Press(browser.Tab, browser.Tab, browser.Tab, browser.Tab, browser.Enter)
			p.Await(`!document.querySelector("[aria-busy=true]")`)
			require.Equal(t, "double-none", browser.Eval[string](p, `document.activeElement.dataset.plays`), "the focus stays on the button")
			require.Equal(t, "2 clicks, 2 orders: the customer pays twice.", p.Text("#double-none .verdict"))
			require.Len(t, c.orders(customerOf(p, "double-none")), 2)
			require.Equal(t, "You will see:\n2 clicks, 1 order: both clicks got its number.", p.Text("#double-ours .verdict"))

			playStory(p, "lost-naive")
			require.Equal(t, "2 clicks, no order: a packet was lost, and the customer is locked out for 2 minutes.", p.Text("#lost-naive .verdict"))
			require.Contains(t, p.Text("#lost-naive .try:last-child"), "Your order is already being processed.")
			require.Regexp(t, `^(2:00|1:\d\d)$`, p.Text("#lost-naive .clock"))
			locked := customerOf(p, "lost-naive")
			require.Empty(t, c.orders(locked))
			held := c.awaitLock("naive=" + locked)
			require.InDelta(t, 110_000, *held.LeaseMS, 10_000)

			playStory(p, "double-ours")
			require.Equal(t, "2 clicks, 1 order: both clicks got its number.", p.Text("#double-ours .verdict"))
			require.Len(t, c.orders(customerOf(p, "double-ours")), 1)
			require.Equal(t, "1 click, 1 order: a packet was lost, and the server asked again.", p.Text("#lost-ours .verdict"))
			served := customerOf(p, "lost-ours")
			require.Len(t, c.orders(served), 1)
			require.Eventually(t, func() bool { return len(c.locks()) == 1 }, 10*time.Second, time.Millisecond, "only the naive lock is left")
			require.Equal(t, 201, c.served(served).status, "this customer is served again at once")

			require.Equal(t, 204, c.do("DELETE", "/locks?key="+queryEscape(held.Key)+"&token="+queryEscape(held.Token), "").status)
			p.Await(`document.querySelector("#lost-naive .lockout").hidden`) // an operator has ended it

			playStory(p, "lost-naive")
			require.NotEqual(t, locked, customerOf(p, "lost-naive"), "another customer")
			require.Contains(t, p.Text("#lost-naive .verdict"), "2 clicks, no order")
		})
	}
}

// One button plays every scene of clicks. Each scene then shows the sentences that it announces
// before it is played.
func TestPlayAll(t *testing.T) {
	var quorum []string
	for range 3 {
		quorum = append(quorum, "-redis", redistest.Start(t).URL())
	}
	for name, start := range map[string]func(t *testing.T) *running{
		"small":  startSmall,
		"full":   func(t *testing.T) *running { t.Helper(); return startDesk(t, "-budget", "3s") },
		"quorum": func(t *testing.T) *running { t.Helper(); return startDesk(t, append(quorum, "-budget", "3s")...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPage(t, start(t))
			p.Expect("status of 503")
			p.Expect("status of 409")
			awaitScript(p)
			scenes := []string{"double-none", "double-ours", "lost-naive", "lost-ours"}
			verdicts, clicks := map[string]string{}, map[string]int{}
			for _, scene := range scenes {
				will, ok := strings.CutPrefix(p.Text("#"+scene+" .verdict"), "You will see:\n")
				require.True(t, ok)
				verdicts[scene], clicks[scene] = will, p.Count("#"+scene+" .try")
			}
			p.Click(".all")
			p.Await(`!document.querySelector("[aria-busy=true]")`)
			for _, scene := range scenes {
				require.Equal(t, verdicts[scene], p.Text("#"+scene+" .verdict"))
				require.Equal(t, clicks[scene], p.Count("#"+scene+" .try"))
			}
			require.Zero(t, p.Count(".scene:not(#carts-shared, #carts-apart) .will"))
		})
	}
}

// startSmall runs the small desk, whose page is the same.
func startSmall(t *testing.T) *running {
	t.Helper()
	program := filepath.Join(t.TempDir(), "desk")
	out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return startWith(t, func(ctx context.Context, stdout, stderr io.Writer) error {
		small := exec.CommandContext(ctx, program, "-addr", "127.0.0.1:0", "-budget", "3s")
		var log bytes.Buffer // stderr is read while the desk runs
		small.Stdout, small.Stderr = stdout, &log
		small.Cancel = func() error { return small.Process.Signal(os.Interrupt) }
		err := small.Run()
		_, _ = log.WriteTo(stderr)
		if !errors.Is(err, context.Canceled) { // it exits with 0
			return fmt.Errorf("the small desk: %w", err)
		}
		return nil
	})
}

// TestVerdictIsInView: on a phone, the verdict is below the buttons that lead to it. The page
// scrolls to it, and the buttons of the stories stay in reach.
func TestVerdictIsInView(t *testing.T) {
	c := startDesk(t, "-work", "0s", "-budget", "3s")
	p := openPage(t, c, browser.Size(375, 667))
	p.Expect("status of 503")
	p.Expect("status of 409")
	awaitScript(p)
	inView := func(selector string) {
		p.Await(`(() => {
			const e = document.querySelector("` + selector + `"), box = e.getBoundingClientRect();
			return [box.top + 1, box.bottom - 1].every((y) => e.contains(document.elementFromPoint(box.x + box.width / 2, y)));
		})()`)
	}
	for story, verdict := range map[string]string{"double-none": "#double-none", "lost-naive": "#lost-naive", "double-ours": "#lost-ours"} {
		playStory(p, story)
		inView(verdict + " .verdict")
		inView(".stories button")
	}
	p.Click("[name=work]")
	p.Click(orderButton)
	p.AwaitText("#outcome", "1 click, 1 order.")
	inView("#outcome")
}
