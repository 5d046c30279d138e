package js_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// shop is a page of React in a browser, before the desk.
type shop struct {
	*browser.Page
	*testing.T
	front *front
	user  string
}

var (
	building sync.Mutex
	script   []byte
)

func open(t *testing.T, d *desk, query string) shop {
	t.Helper()
	building.Lock()
	if script == nil {
		script = bundle(t, "page.jsx")
	}
	building.Unlock()
	s := shop{browser.New(t), t, startFront(t, script, d), "42"}
	s.Expect("net::ERR_")
	s.Expect("status of")
	s.Open(s.front.url + "/?user=" + s.user + query)
	s.AwaitText("p", "ready")
	return s
}

func (s shop) again() {
	s.Helper()
	s.Reload()
	s.AwaitText("p", "ready")
}

func (s shop) requireOrders(n int) {
	s.T.Helper()
	require.Equal(s.T, n, s.front.desk.orders(s.T, s.user))
}

// requireOne: there is one order, and all that was sent for it had one key.
func (s shop) requireOne() {
	s.T.Helper()
	s.AwaitText("p", "answer 201")
	s.requireOrders(1)
	for _, key := range s.front.keys {
		require.NotEmpty(s.T, key)
		require.Equal(s.T, s.front.keys[0], key)
	}
}

func (s shop) Helper() { s.T.Helper() }

// TestLostAnswer: the answer is lost, or breaks off in its body. The twin is a loop over fetch.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query  string
		part   bool
		orders int
	}{
		"none of it arrives":       {"", false, 1},
		"a part of it arrives":     {"", true, 1},
		"none of it, without this": {"&plain", false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, startDesk(t), tt.query)
			s.front.set(func() { s.front.lose, s.front.part = 2, tt.part })
			s.Click("button")
			s.AwaitText("p", "answer 201")
			s.requireOrders(tt.orders)
			if tt.orders > 1 {
				return
			}
			s.requireOne()
			require.Len(t, s.front.sent(t, 3), 3)
			s.Click("button")
			s.front.sent(t, 4)
			s.AwaitText("p", "answer 201")
			s.requireOrders(2)
		})
	}
}

// TestDoubleClick sends one request. The next click, after the answer, is another order.
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query        string
		sent, orders int
	}{"with the hook": {"", 1, 1}, "without": {"&plain", 2, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, startDesk(t), tt.query)
			s.front.set(func() { s.front.hold = make(chan struct{}) })
			click := s.Aim("button")
			click()
			s.front.sent(t, 1)
			click()
			s.Press(browser.Enter)
			s.front.sent(t, tt.sent)
			s.front.release()
			s.AwaitText("p", "answer 201")
			require.Eventually(t, func() bool { return s.front.desk.orders(t, s.user) >= tt.orders }, timeout, tick)
			if tt.sent == 1 {
				require.Len(t, s.front.sent(t, 1), 1)
				s.requireOne()
			}
		})
	}
}

// TestReload: the page is loaded again while the order is under way, and the same is ordered again.
func TestReload(t *testing.T) {
	t.Parallel()
	s := open(t, startDesk(t), "")
	s.front.set(func() { s.front.hold = make(chan struct{}) })
	s.Click("button")
	s.front.sent(t, 1)
	s.again()
	s.front.release()
	s.Click("button")
	s.requireOne()

	// Another article is another order.
	s.Type("input", "coffee")
	s.Click("button")
	keys := s.front.sent(t, 3)
	require.NotEqual(t, keys[0], keys[2])
}

// TestTabs: a copy of a tab has its keys, and a tab that was opened separately is another customer's
// intent.
func TestTabs(t *testing.T) {
	t.Parallel()
	s := open(t, startDesk(t), "")
	s.front.set(func() { s.front.hold = make(chan struct{}) })
	s.Click("button")
	s.front.sent(t, 1)
	tab := s.OpenTab(s.front.url + "/?user=" + s.user)
	tab.AwaitText("p", "ready")
	tab.Click("button")
	s.front.sent(t, 2)
	s.front.release()
	tab.AwaitText("p", "answer 201")
	s.requireOne()

	other := browser.New(t)
	other.Open(s.front.url + "/?user=" + s.user)
	other.Click("button")
	other.AwaitText("p", "answer 201")
	s.requireOrders(2)
}

// TestOffline: the network is gone before the order, or before its answer, and comes back.
func TestOffline(t *testing.T) {
	t.Parallel()
	t.Run("before the order", func(t *testing.T) {
		t.Parallel()
		s := open(t, startDesk(t), "")
		s.Offline(true)
		s.Click("button")
		s.AwaitText("p", "pending")
		s.Await(`performance.getEntriesByType("resource").some((e) => e.name.endsWith("/orders"))`) // an attempt has failed
		s.Offline(false)
		s.requireOne()
	})
	t.Run("before the answer, and a reload", func(t *testing.T) {
		t.Parallel()
		s := open(t, startDesk(t), "")
		s.front.set(func() { s.front.hold, s.front.lose = make(chan struct{}), 1 })
		s.Click("button")
		s.front.sent(t, 1)
		s.Offline(true) // Chromium lets what is under way go on
		s.front.release()
		s.Await(`performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/orders")).length >= 2`)
		s.Offline(false)
		s.again()
		s.Click("button")
		s.requireOne()
	})
}

// TestServiceWorker: it sends what fails once more by itself, with the same key.
func TestServiceWorker(t *testing.T) {
	t.Parallel()
	s := open(t, startDesk(t), "")
	browser.Eval[bool](s.Page, `(navigator.serviceWorker.register("/worker.js"), true)`)
	s.Await(`navigator.serviceWorker.controller`)
	s.front.set(func() { s.front.lose = 3 })
	s.Click("button")
	s.requireOne()
	require.Len(t, s.front.sent(t, 4), 4)
}

// TestKilledDesk: its process is killed after the effect, and another one answers. With the key, the
// effect and its answer are committed together.
func TestKilledDesk(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query  string
		orders int
	}{"with a key": {"", 1}, "without": {"&plain", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-sqlite", filepath.Join(t.TempDir(), "desk.db"), "-lease", "10s"}
			d := startDesk(t, args...)
			s := open(t, d, tt.query)
			s.front.set(func() { s.front.fail = "hang" })
			s.Click("button")
			s.front.sent(t, 1)
			if tt.orders == 2 {
				require.Eventually(t, func() bool { return d.orders(t, s.user) == 1 }, timeout, tick)
			}
			d.kill()
			next := startDesk(t, args...)
			s.front.set(func() { s.front.desk = next })
			s.AwaitText("p", "answer 201")
			s.requireOrders(tt.orders)
			if tt.orders == 1 {
				s.requireOne()
			}
		})
	}
}
