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

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// playStory plays the story that begins with a scene, and returns when it has ended.
func playStory(p *browser.Page, scene string) {
	p.Click(`button[data-plays^="` + scene + `"]:not(.all)`)
	p.Await(`!document.querySelector("[aria-busy=true]")`)
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
