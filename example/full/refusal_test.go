package main_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// site has a plain form, whose orders take until finish is closed.
type site struct {
	url     string
	orders  atomic.Int64
	entered chan context.Context // of the handler
	served  chan struct{}        // a POST was
	gone    chan struct{}        // the client of the first POST has
	finish  chan struct{}
	end     func() // closes finish
}

// betweenClicks is long enough for the first click's request to be on its way. While Chromium
// waits for an answer it can be clicked on, but not asked.
const betweenClicks = 400 * time.Millisecond

const plainForm = `<!doctype html><title>Order</title><form method="post" action="/orders?shop=1">
<input type="hidden" name="once" value="k1">
<input name="sku" value="t&quot;&gt;&lt;script&gt;é~*">
<textarea name="note">
one
two &amp;amp; </textarea>
<button name="how" value="by mail">Order</button></form>`

func startSite(t *testing.T, policy string, guard func(http.Handler) http.Handler) *site {
	t.Helper()
	s := &site{
		entered: make(chan context.Context, 10), served: make(chan struct{}, 10),
		gone: make(chan struct{}, 10), finish: make(chan struct{}),
	}
	s.end = sync.OnceFunc(func() { close(s.finish) })
	take := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // before its body is read, net/http does not notice that a client goes away
		s.entered <- r.Context()
		<-s.finish
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<!doctype html><h1>Order %d</h1>", s.orders.Add(1))
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if policy != "" {
			w.Header().Set("Content-Security-Policy", policy)
		}
		switch {
		case r.Method == http.MethodPost:
			defer context.AfterFunc(r.Context(), func() { s.gone <- struct{}{} })()
			take.ServeHTTP(w, r)
			s.served <- struct{}{}
		case r.URL.Path == "/":
			_, _ = w.Write([]byte(plainForm))
		default:
			w.WriteHeader(http.StatusNoContent) // a browser asks for an icon
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(s.end) // before the server waits for its handlers
	s.url = server.URL
	return s
}

func newSiteLocker(t *testing.T, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(memstore.New(), opts...)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// TestLookAgain: a double click on a plain form whose repeats do not wait. The browser abandons the first request and
// shows the answer to the second: a page, with a button that in the end gets the first answer.
func TestLookAgain(t *testing.T) {
	strict := "default-src 'none'; form-action 'self'"
	for name, tt := range map[string]struct {
		policy string
		opts   []browser.Option
	}{
		"no script":         {"", []browser.Option{browser.NoScript()}},
		"script":            {"", nil},
		"no inline style":   {strict, []browser.Option{browser.NoScript()}},
		"style by its hash": {strict + "; style-src 'sha256-U5sfQKKax2g6tRXk2Ggo+UHctXQfzDbdDIr9Lt0kPlM='", []browser.Option{browser.NoScript()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, tt.policy, latch.Idempotent(newSiteLocker(t, lock.WithWait(0)), keyfunc.Global, keyfunc.Form("once")))
			p := browser.New(t, tt.opts...)
			p.Expect("status of 409")
			if tt.policy == strict {
				p.Expect("Content Security Policy")
			}
			p.Open(s.url)
			p.Follow(func() { p.ClickTwice("button", betweenClicks) })
			<-s.entered
			for range 2 {
				require.Equal(t, "Still being processed", p.Text("h1"))
				require.Equal(t, 1, p.Count(`head meta[name=latch-problem][content=in-progress]`))
				require.Equal(t, "Look again", p.Text("button"))
				require.Equal(t, 5-1, p.Count("input[type=hidden]"), "once, sku, note and the first button's own")
				<-s.served // the refusal
				p.Follow(func() { p.Click("button") })
			}
			<-s.served
			s.end()
			<-s.served // the first, which has run to its end
			p.Follow(func() { p.Click("button") })
			require.Equal(t, "Order 1", p.Text("h1"), "the first answer")
			require.EqualValues(t, 1, s.orders.Load())
		})
	}
}

// TestDoubleClickWithoutGuard is the same with nothing in front of the handler: two orders.
func TestDoubleClickWithoutGuard(t *testing.T) {
	s := startSite(t, "", func(next http.Handler) http.Handler { return next })
	p := browser.New(t, browser.NoScript())
	p.Open(s.url)
	p.Follow(func() {
		p.ClickTwice("button", betweenClicks)
		<-s.entered
		<-s.entered
		s.end()
	})
	<-s.served
	<-s.served
	require.EqualValues(t, 2, s.orders.Load())
}

// TestSecondClickAndLock: the second click takes the connection of the first away, and with it,
// unless the Locker has WithDetached, the context of the work that the first has begun.
func TestSecondClickAndLock(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []lock.Option
		goes bool
	}{
		"Lock":              {nil, false},
		"with WithDetached": {[]lock.Option{lock.WithDetached()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, "", latch.Lock(newSiteLocker(t, tt.opts...), "all", keyfunc.Global))
			p := browser.New(t, browser.NoScript())
			p.Expect("status of 409")
			p.Open(s.url)
			p.Follow(func() { p.ClickTwice("button", betweenClicks) })
			work := <-s.entered
			require.Equal(t, "Another request is still being processed", p.Text("h1"))
			require.Zero(t, p.Count("button, form"), "sent again, it would be a second order")
			<-s.gone
			if !tt.goes {
				<-work.Done()
			}
			require.Equal(t, tt.goes, work.Err() == nil)
			s.end()
			<-s.served
			<-s.served
			require.EqualValues(t, 1, s.orders.Load())
		})
	}
}
