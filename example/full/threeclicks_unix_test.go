//go:build unix

package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	desk "github.com/httplatch/httplatch/example/full"
	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
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

// The twin: of a record without a label, the same search finds nothing, though it is there.
func TestThreeClicksNeedALabel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := browser.New(t)
	survivor := startDesk(t, "-redis", server.URL(), "-budget", "1s")
	vanishUnlabelled(t, server)
	require.Eventually(t, func() bool {
		return strings.Contains(survivor.do("GET", "/console", "").body, `"outcome-unknown"`)
	}, 20*time.Second, 20*time.Millisecond)
	clicks, found := whyNot(p, survivor.url, "42")
	require.Equal(t, 2, clicks)
	require.Equal(t, "Nothing.", found)
	_, found = whyNot(p, survivor.url, "/orders")
	require.Contains(t, found, "Outcome unknown: POST /orders was begun at ", "it is there")
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

// vanishUnlabelled leaves a record whose process is cut off from the store, of a guard whose
// records have no label.
func vanishUnlabelled(t *testing.T, server *redistest.Server) {
	t.Helper()
	proxy := respproxy.Start(t, server.Addr())
	store, err := redisstore.Open(t.Context(), proxy.URL(), redisstore.WithPrefix(desk.Prefix))
	require.NoError(t, err)
	l := lock.New(store, lock.WithLease(2*time.Second), lock.WithBudget(time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)))
	inside, served := make(chan struct{}), make(chan struct{})
	none := latch.WithLabel(func(*http.Request) string { return "" })
	h := latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey, none)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	}))
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(order))
	r.Header.Set("X-User-ID", "42")
	r.Header.Set("Idempotency-Key", "8e03978e")
	go func() {
		defer close(served)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-inside
	proxy.Freeze()
	t.Cleanup(func() {
		proxy.Thaw()
		<-served
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
		require.NoError(t, store.Close())
	})
}
