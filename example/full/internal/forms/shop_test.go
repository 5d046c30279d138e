package forms_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// shop is a server with a form, whose orders are counted.
type shop struct {
	plan

	url    string
	orders atomic.Int64
	lose   atomic.Bool  // the answers to orders, while it is true
	cut    atomic.Bool  // the pages of orders, while it is true: the redirect arrives, and what it leads to does not
	kind   atomic.Value // article of the last post

	mu      sync.Mutex
	posts   []post
	arrived chan struct{}   // closed by the next post
	client  <-chan struct{} // of the last post; closed when it has left
	open    chan struct{}   // orders wait until it is closed
}

// post is a submission of a browser.
type post struct{ once, header, sku, how string }

// plan describes how a shop differs from one whose form has script, field and guard.
type plan struct {
	noScript, noField, noGuard bool

	cached   bool              // browsers may keep the page with the form
	form     string            // instead of plainForm
	policy   string            // instead of strictPolicy
	style    string            // the site's own
	scripts  map[string][]byte // more of them, by path
	referrer string            // Referrer-Policy
	answer   http.HandlerFunc  // instead of an order
	provider string            // where orders are paid, and which leads to their page then
	guard    []latch.IdempotentOption
	refuse   bool // each order, with the problem whose kind is the article
	outage   bool // the store has it that the guard refuses each order with that problem
	mute     bool // a proxy removes what the guard reports

	noWait      bool // repeats do not wait for the first answer
	ownRefusal  bool // it is shown in a page of the shop
	bareAnswer  bool // the answer has no script
	lateScript  bool // it comes after the first POST
	noIntegrity bool // the script's element has no integrity value
}

func openShop(t *testing.T, p plan) *shop {
	t.Helper()
	s := &shop{plan: p, arrived: make(chan struct{}), open: make(chan struct{})}
	close(s.open)
	mux := http.NewServeMux()
	s.pages(t, mux)
	mux.Handle("POST /orders", s.counted(s.guarded(t, http.HandlerFunc(s.order))))
	server := httptest.NewUnstartedServer(mux)
	// Chromium itself repeats a POST if a connection that it has used before breaks.
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(s.release) // before the server waits for its handlers
	s.url = server.URL
	return s
}

func (s *shop) guarded(t *testing.T, h http.Handler) http.Handler {
	t.Helper()
	if s.noGuard {
		return h
	}
	var store lock.Store = memstore.New()
	if s.outage {
		store = outage{store, s}
	}
	wait := 30 * time.Second
	if s.noWait {
		wait = 0
	}
	l := lock.New(store, lock.WithWait(wait))
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	opts := s.guard
	if s.ownRefusal {
		opts = append(slices.Clone(opts), latch.WithErrorHandler(s.showProblem))
	}
	return latch.Idempotent(l, keyfunc.Global, keyfunc.Form("once"), opts...)(h)
}

// counted notes each POST, and breaks its connection while answers are lost.
func (s *shop) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := fieldsOf(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		s.mu.Lock()
		s.posts = append(s.posts, post{body.Get("once"), r.Header.Get("Idempotency-Key"), body.Get("sku"), body.Get("how")})
		s.client = r.Context().Done()
		close(s.arrived)
		s.arrived = make(chan struct{})
		s.mu.Unlock()
		s.kind.Store(body.Get("sku"))
		if s.mute {
			w = muted{w}
		}
		if s.lose.Load() {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	<-open
	switch sku := r.PostFormValue("sku"); {
	case s.refuse:
		s.refusal(w, r)
	case s.provider != "":
		back := fmt.Sprintf("%s/orders/%d", s.url, s.orders.Add(1))
		http.Redirect(w, r, s.provider+"/?back="+url.QueryEscape(back), http.StatusSeeOther)
	case s.answer != nil:
		s.orders.Add(1)
		s.answer(w, r)
	case sku == "":
		s.show(w, http.StatusUnprocessableEntity, "", "<h1>Please choose an article</h1>"+s.form)
	default:
		http.Redirect(w, r, fmt.Sprintf("/orders/%d", s.orders.Add(1)), http.StatusSeeOther)
	}
}

// muted is a proxy that lets no cookie pass.
type muted struct{ http.ResponseWriter }

func (m muted) WriteHeader(status int) {
	m.Header().Del("Set-Cookie")
	m.ResponseWriter.WriteHeader(status)
}

// hold makes orders wait for release.
func (s *shop) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = make(chan struct{})
}

func (s *shop) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.open:
	default:
		close(s.open)
	}
}

// sent returns all posts, once there are n.
func (s *shop) sent(t *testing.T, n int) []post {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		posts, next := slices.Clone(s.posts), s.arrived
		s.mu.Unlock()
		if len(posts) >= n {
			return posts
		}
		select {
		case <-next:
		case <-timeout.C:
			require.FailNow(t, "posts are missing", "%d of %d", len(posts), n)
		}
	}
}

// left returns when the client of the last post has left, whose answer is held.
func (s *shop) left(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case <-client:
	case <-timeout.C:
		require.FailNow(t, "the client is still there")
	}
}
