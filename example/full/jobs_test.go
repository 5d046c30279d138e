package main_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func (c *client) later(user, key string) reply {
	c.t.Helper()
	return c.do(http.MethodPost, "/orders?later=1", order, "X-User-ID", user, "Idempotency-Key", key)
}

func (c *client) placedLater(user, key string) (got reply) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		got = c.later(user, key)
		return got.status == http.StatusCreated
	}, 30*time.Second, 10*time.Millisecond, "%v", got)
	return got
}

// An accepted order is at its Location before and after a worker has placed it. Every repeat gets
// the final answer then, at both desks.
func TestOrderThatIsPlacedLater(t *testing.T) {
	t.Parallel()
	for store, args := range sharedStores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			onBothRouters(t, func(t *testing.T, router string) {
				shared := append(args(t), "-router", router, "-work", "2s", "-worker")
				c := startDesk(t, shared...)
				accepted := c.later("42", "k")
				require.Equal(t, http.StatusAccepted, accepted.status, accepted.body)
				require.Equal(t, accepted.body, c.later("42", "k").body)
				at := accepted.header.Get("Location")
				require.Contains(t, c.do("GET", at, "").body, `"status":"accepted"`)
				require.Empty(t, c.orders("42"))

				final := c.placedLater("42", "k")
				require.Equal(t, at, final.header.Get("Location"))
				require.Equal(t, "application/json", final.header.Get("Content-Type"))
				require.Contains(t, c.do("GET", at, "").body, `"status":"placed"`)
				if store != "memory" {
					c = startDesk(t, shared...)
				}
				require.Equal(t, final.body, c.placedLater("42", "k").body)
			})
		})
	}
}

// What a desk cannot do later is refused with what to do about it.
func TestLaterIsRefused(t *testing.T) {
	t.Parallel()
	master := func() string { return redistest.Start(t).URL() }
	for name, tt := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"no worker": {nil, http.StatusNotImplemented, "Start it with -worker"},
		"SQLite":    {[]string{"-sqlite", filepath.Join(t.TempDir(), "desk.db"), "-budget", "10s"}, http.StatusNotImplemented, "Start it with -postgres"},
		"no transaction": {
			newDatabase(t).patiently("-transaction=false"), http.StatusNotImplemented, "Start it with -postgres",
		},
		"a quorum": {[]string{"-redis", master(), "-redis", master(), "-redis", master()}, http.StatusNotImplemented, "Start it with one -redis"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, tt.args...)
			got := c.later("42", "k")
			requireProblem(t, tt.status, got)
			require.Contains(t, got.body, tt.says)
			require.Empty(t, c.orders("42"))
		})
	}
	c := startDesk(t, "-worker")
	got := c.do("POST", "/orders?later=1", order, "X-User-ID", "42")
	requireProblem(t, http.StatusBadRequest, got)
	require.Contains(t, got.body, "needs an Idempotency-Key")
	requireProblem(t, http.StatusBadRequest, c.do("POST", "/orders?later=soon", order, "X-User-ID", "42", "Idempotency-Key", "k"))
}

// A worker in another process is killed while it works on the only job, and the next one before it has
// the job. The third places the order, once.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	short := []string{"-postgres", db.url, "-lease", "4s", "-budget", "2s"}
	c := startProcess(t, short...)
	accepted := c.later("42", "k")
	require.Equal(t, http.StatusAccepted, accepted.status, accepted.body)
	victim := startProcess(t, append(short, "-worker", "-work", "30s")...)
	require.Eventually(t, func() bool {
		return db.count(t, "SELECT count(*) FROM latch_entries WHERE receipt IS NULL AND token <> '' AND key LIKE 'once:%'") == 1
	}, 30*time.Second, time.Millisecond)
	victim.kill(t)
	require.Equal(t, accepted.body, c.later("42", "k").body)
	startProcess(t, append(short, "-worker", "-work", "30s")...).kill(t)

	startProcess(t, append(short, "-worker", "-work", "0s")...)
	final := c.placedLater("42", "k")
	require.Equal(t, accepted.header.Get("Location"), final.header.Get("Location"))
	require.Equal(t, 1, db.count(t, "SELECT count(*) FROM orders"))
	require.Zero(t, db.count(t, "SELECT count(*) FROM order_jobs"))
	require.Equal(t, final.body, c.placedLater("42", "k").body)
}
