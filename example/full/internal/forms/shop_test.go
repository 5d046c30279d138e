package forms_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

type shop struct {
	plan

	url    string
	orders atomic.Int64
	lose   atomic.Bool  // the answers to orders, while it is true
	cut    atomic.Bool  // the pages of orders, while it is true: the redirect arrives, and what it leads to does not
	kind   atomic.Value // article of the last post

	mu     sync.Mutex
	posts  []post
	client context.Context //nolint:containedctx // of the last post; ends when its client has left
	open   chan struct{}   // orders wait until it is closed
}

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
	outage   bool // the store has it that the guard refuses each order, with the problem whose kind is the article
	mute     bool // a proxy removes what the guard reports

	noWait      bool // repeats do not wait for the first answer
	ownRefusal  bool // it is shown in a page of the shop
	bareAnswer  bool // the answer has no script
	lateScript  bool // it comes after the first POST
	noIntegrity bool // the script's element has no integrity value
}

func openShop(t *testing.T, p plan) *shop {
	t.Helper()
	s := &shop{plan: p, open: make(chan struct{})}
	close(s.open)
	mux := http.NewServeMux()
	s.pages(t, mux)
	mux.Handle("POST /orders", s.counted(s.guarded(t, http.HandlerFunc(s.order))))
	s.url = serve(t, mux)
	t.Cleanup(s.release) // before the server waits for its handlers
	return s
}

// serve starts a server without connections that are used again: Chromium itself repeats a POST if one of them breaks.
func serve(t *testing.T, h http.Handler) (site string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
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
	l := guardtest.NewLocker(t, store, lock.WithWait(wait))
	opts := s.guard
	if s.ownRefusal {
		opts = append(slices.Clone(opts), latch.WithErrorHandler(s.showProblem))
	}
	return latch.Idempotent(l, keyfunc.Global, keyfunc.Form("once"), opts...)(h)
}

func (s *shop) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := fieldsOf(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		s.mu.Lock()
		s.posts = append(s.posts, post{body.Get("once"), r.Header.Get("Idempotency-Key"), body.Get("sku"), body.Get("how")})
		s.client = r.Context()
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

type muted struct{ http.ResponseWriter }

func (m muted) WriteHeader(status int) {
	m.Header().Del("Set-Cookie")
	m.ResponseWriter.WriteHeader(status)
}

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

func (s *shop) sent(t *testing.T, n int) (posts []post) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		posts = slices.Clone(s.posts)
		return len(posts) >= n
	}, 30*time.Second, 5*time.Millisecond, "posts are missing")
	return posts
}

// left returns when the client of the last post has left, whose answer is held.
func (s *shop) left(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	require.Eventually(t, func() bool { return client.Err() != nil }, 30*time.Second, 5*time.Millisecond, "the client is still there")
}

// strictPolicy is the strictest under which a page has a form and a script.
const strictPolicy = "default-src 'none'; script-src 'self'; form-action 'self'"

const plainForm = `<form method="post" action="/orders" data-latch>{{.Field}}
<label>Article <input name="sku"></label>
<button name="how" value="by mail">Order</button>
</form>`

var layout = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Shop</title>
{{.Head}}
{{if .Style}}<link rel="stylesheet" href="/style.css">{{end}}
{{if .Script}}<script src="/latch.js?v={{.Integrity}}"{{if .Check}} integrity="{{.Integrity}}"{{end}} defer></script>{{end}}
{{range $path, $_ := .Scripts}}<script src="{{$path}}" defer></script>{{end}}
</head>
<body><main>
{{.Main}}
<p><a href="/new">Another order</a></p>
</main></body>
</html>
`))

func (s *shop) pages(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	if s.form == "" {
		s.form = plainForm
	}
	if s.policy == "" {
		s.policy = strictPolicy
	}
	mux.HandleFunc("GET /latch.js", func(w http.ResponseWriter, r *http.Request) {
		if s.lateScript {
			s.sent(t, 1)
		}
		form.Script().ServeHTTP(w, r)
	})
	for path, content := range s.scripts {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = w.Write(content)
		})
	}
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(s.style))
	})
	mux.HandleFunc("GET /new", func(w http.ResponseWriter, _ *http.Request) {
		s.show(w, http.StatusOK, "", "<h1>New order</h1>"+s.form)
	})
	mux.HandleFunc("GET /orders/{n}", func(w http.ResponseWriter, r *http.Request) {
		if s.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		answer := s.plan
		answer.noScript = s.noScript || s.bareAnswer
		answer.show(w, http.StatusOK, "", "<h1>Thank you for order "+r.PathValue("n")+"</h1>")
	})
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
}

func (p plan) show(w http.ResponseWriter, status int, head, main string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	if p.referrer != "" {
		h.Set("Referrer-Policy", p.referrer)
	}
	if !p.cached {
		h.Set("Cache-Control", "no-store")
	}
	data := map[string]any{
		"Script": !p.noScript, "Check": !p.noIntegrity, "Integrity": form.Integrity, "Scripts": p.scripts,
		"Head": template.HTML(head), "Style": p.style != "", "Field": template.HTML(""), "Token": rand.Text(),
	}
	if !p.noField {
		data["Field"] = form.Field()
	}
	var b bytes.Buffer
	if err := template.Must(template.New("").Parse(main)).Execute(&b, data); err != nil {
		panic(err)
	}
	data["Main"] = template.HTML(b.String())
	w.WriteHeader(status)
	_ = layout.Execute(w, data) // a browser may be gone
}

func latchScript(t *testing.T) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	form.Script().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/latch.js", nil))
	return w.Body.Bytes()
}

// fieldsOf returns the fields of a form, none of another body, and leaves the body as it was.
func fieldsOf(r *http.Request) (url.Values, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		body = nil
	}
	return url.ParseQuery(string(body))
}
