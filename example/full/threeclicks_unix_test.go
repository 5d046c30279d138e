//go:build unix

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// A desk is killed in the middle of a keyed order. Why can't user 42 order? An operator
// who opens the console of another desk has the answer within three clicks, and one who
// reads its log with none.
func TestThreeClicks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	args := []string{"-redis", server.URL(), "-lease", "3s", "-budget", "1s"}
	victim, survivor := startProcess(t, args...), startProcess(t, args...)
	answer := victim.inBackground("Idempotency-Key", "8e03978e", "X-Work", "30s")
	require.NoError(t, victim.cmd.Process.Kill()) // SIGKILL
	died := time.Now()
	require.Error(t, victim.cmd.Wait())
	require.Zero(t, (<-answer).status)
	awaitUnknown(t, survivor)

	p := browser.New(t)
	clicks, found := whyNot(p, survivor.url, "42")
	require.LessOrEqual(t, clicks, 3)
	t.Logf("%d clicks: %s", clicks, found)
	require.Contains(t, found, "Outcome unknown: POST /orders of 42 was begun at ")
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Contains(t, found, fmt.Sprintf("by process %d on host %s, which is gone. It is not known how far it came.", victim.cmd.Process.Pid, host))
	require.Regexp(t, `Guard\s+order-once`, found)
	require.Regexp(t, `Label\s+42: `, found)
	began, err := time.Parse(time.DateTime, regexp.MustCompile(`Begun\s+(\S+ \S+) UTC`).FindStringSubmatch(found)[1])
	require.NoError(t, err)
	require.WithinDuration(t, died, began, 10*time.Second)

	link := regexp.MustCompile(`holder has vanished;.* console="([^"]+)"`).FindStringSubmatch(survivor.stderr.String())
	require.NotNil(t, link, survivor.stderr.String())
	entry := browser.Eval[string](p, "location.href")
	p.Open(link[1])
	require.Contains(t, p.Text(".summary"), "Outcome unknown: POST /orders of 42 was begun at ")
	require.Equal(t, strings.ReplaceAll(entry, "%3A", ":"), link[1])
}

// awaitUnknown repeats the order of user 42 until its outcome is reported as unknown: when
// the lease of the process that has gone is over.
func awaitUnknown(t *testing.T, d *process) {
	t.Helper()
	var got reply
	require.Eventually(t, func() bool {
		got = d.order("42", "Idempotency-Key", "8e03978e")
		return strings.Contains(got.body, "#outcome-unknown")
	}, 20*time.Second, 20*time.Millisecond, "%v", got)
	requireProblem(t, http.StatusConflict, got)
}

// whyNot is what an operator does who knows nothing but the user: it returns the clicks that
// it took, and what the last page says.
func whyNot(p *browser.Page, url, user string) (clicks int, found string) {
	p.Open(url + "/console")
	click := func(selector string) {
		clicks++
		p.Click(selector)
	}
	click("#q")
	p.Press(strings.Split(user, "")...)
	p.Follow(func() { click(".search button") })
	p.Await(`document.querySelector(".entries li") || document.querySelector("main > .nothing")?.innerText === "Nothing."`)
	if p.Count(".entries li") == 0 {
		return clicks, p.Text("main > .nothing")
	}
	p.Follow(func() { click(".entries a") })
	return clicks, p.Text("main")
}
