package forms_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// endpoint is the target of a script: the n-th attempt ends as the case says, others are served.
type endpoint struct {
	mu   sync.Mutex
	keys []string
	own  []string // header of the page
	at   []time.Time

	effects atomic.Int64
}

func (e *endpoint) arrived(r *http.Request) (attempt int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys = append(e.keys, r.Header.Get("Idempotency-Key"))
	e.own = append(e.own, r.Header.Get("X-Own"))
	e.at = append(e.at, time.Now())
	return len(e.keys)
}

type fetchCase struct {
	name string
	call string // of latch.fetch, in the page; its URL is "/"+name
	each func(attempt int, serve func(http.ResponseWriter), w http.ResponseWriter)

	attempts int
	effects  int64
	want     string // status, and what the call resolves to
}

func problem(kind string, status int, after string) func(int, func(http.ResponseWriter), http.ResponseWriter) {
	return func(attempt int, serve func(http.ResponseWriter), w http.ResponseWriter) {
		if attempt > 1 {
			serve(w)
			return
		}
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":%q}`, problemTypes+kind)
	}
}

// lost serves the first attempt, and breaks its connection.
func lost(attempt int, serve func(http.ResponseWriter), w http.ResponseWriter) {
	if attempt > 1 {
		serve(w)
		return
	}
	serve(httptest.NewRecorder())
	panic(http.ErrAbortHandler)
}

const plainCall = `latch.fetch(url, {method: "POST", body: "tea"})`

// abortedCall is given up after the first answer.
const abortedCall = `(() => {
	const given = new AbortController();
	const poll = setInterval(() => {
		if (performance.getEntriesByName(location.origin + url).length) given.abort(clearInterval(poll));
	}, 10);
	return latch.fetch(url, {method: "POST", body: "tea", signal: given.signal});
})()`

// requestCall has all that the server is to get in a Request.
const requestCall = `latch.fetch(new Request(url, {headers: {"X-Own": "mine"}, method: "POST", body: "tea"}))`

var abortedRequest = strings.NewReplacer("latch.fetch(url", "latch.fetch(new Request(url", "given.signal})", "given.signal}))").Replace(abortedCall)

var fetchCases = []fetchCase{
	{"served", plainCall, nil, 1, 1, "201 effect 1"},
	{"lost", plainCall, lost, 2, 1, "201 effect 1"},
	{"lost-blob", `latch.fetch(url, {method: "POST", body: new Blob(["tea"])})`, lost, 2, 1, "201 effect 1"},
	{"in-progress", plainCall, problem("in-progress", 409, "1"), 2, 1, "201 effect 1"},
	{"unavailable", plainCall, problem("unavailable", 503, "2"), 2, 1, "201 effect 1"},
	{"gateway", plainCall, problem("about:blank", 502, ""), 2, 1, "201 effect 1"},
	{"http-date", plainCall, problem("unavailable", 503, "Wed, 21 Oct 2015 07:28:00 GMT"), 2, 1, "201 effect 1"},
	{"outcome-unknown", plainCall, problem("outcome-unknown", 409, ""), 1, 0, "409 outcome-unknown"},
	{"held", plainCall, problem("held", 409, "1"), 1, 0, "409 held"},
	{"key-reused", plainCall, problem("key-reused", 422, ""), 1, 0, "422 key-reused"},
	{"mistake", plainCall, problem("x", 500, "1"), 1, 0, "500 x"},
	{"for-ever", plainCall, problem("unavailable", 503, "1000000000"), 1, 0, "503 unavailable"},
	{"aborted", abortedCall, problem("unavailable", 503, "50"), 1, 0, "AbortError"},
	{"own-key", `latch.fetch(url, {method: "POST", headers: {"Idempotency-Key": "own"}, body: "tea"})`, lost, 2, 1, "201 effect 1"},
	{"request", requestCall, lost, 2, 1, "201 effect 1"},
	{"request-own-key", strings.Replace(requestCall, "headers: {", `headers: {"Idempotency-Key": "own", `, 1), lost, 2, 1, "201 effect 1"},
	{"request-and-headers", strings.Replace(requestCall, "}))", `}), {headers: {"X-Own": "instead"}})`, 1), lost, 2, 1, "201 effect 1"},
	{"aborted-request", abortedRequest, problem("unavailable", 503, "50"), 1, 0, "AbortError"},
	{"of-a-form", `latch.fetch(url, {method: "POST", body: new URLSearchParams("once=of-form")})`, lost, 2, 1, "201 effect 1"},
}

func startEndpoints(t *testing.T) (url string, endpoints map[string]*endpoint) {
	t.Helper()
	l := lock.New(memstore.New())
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	once := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)
	mux := http.NewServeMux()
	mux.Handle("GET /latch.js", form.Script())
	p := plan{policy: strictPolicy + "; connect-src 'self'", form: plainForm}
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { p.show(w, http.StatusOK, "", "<h1>Fetch</h1>"+p.form) })
	endpoints = map[string]*endpoint{}
	for _, c := range fetchCases {
		e := &endpoint{}
		endpoints[c.name] = e
		guarded := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, "effect %d", e.effects.Add(1))
		}))
		mux.HandleFunc("POST /"+c.name, func(w http.ResponseWriter, r *http.Request) {
			serve := func(w http.ResponseWriter) { guarded.ServeHTTP(w, r) }
			if attempt := e.arrived(r); c.each != nil {
				c.each(attempt, serve, w)
			} else {
				serve(w)
			}
		})
	}
	server := httptest.NewUnstartedServer(mux)
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, endpoints
}

// TestFetch: each call ends, with one key for all its attempts. The twin of each lost answer is
// fetch itself, in a loop that many pages have.
func TestFetch(t *testing.T) {
	t.Parallel()
	url, endpoints := startEndpoints(t)
	p := browser.New(t)
	p.Expect("status of")
	p.Expect("net::ERR_")
	p.Open(url)
	browser.Eval[bool](p, "window.ended = {}, true")
	for _, c := range fetchCases {
		browser.Eval[bool](p, `(() => {
			const url = "/`+c.name+`";
			`+c.call+`.then(async (r) => { const text = await r.text(); return r.status + " " + (r.ok ? text : JSON.parse(text).type.split("#")[1]); }, (e) => e.name)
				.then((result) => { ended[url] = result; });
			return true;
		})()`)
	}
	p.Await(fmt.Sprintf("Object.keys(ended).length == %d", len(fetchCases)))
	for _, c := range fetchCases {
		e := endpoints[c.name]
		require.Equal(t, c.want, browser.Eval[string](p, `ended["/`+c.name+`"]`), c.name)
		require.Equal(t, c.effects, e.effects.Load(), c.name)
		require.GreaterOrEqual(t, len(e.keys), c.attempts, c.name) // the browser repeats some itself
		for n, key := range e.keys {
			require.NotEmpty(t, key, c.name)
			require.Equal(t, e.keys[0], key, "%s: attempt %d", c.name, n)
		}
	}
	require.Equal(t, "own", endpoints["own-key"].keys[0])
	require.Equal(t, "of-form", endpoints["of-a-form"].keys[0])
	require.Equal(t, "own", endpoints["request-own-key"].keys[0])
	for name, want := range map[string]string{"request": "mine", "request-own-key": "mine", "request-and-headers": "instead"} {
		for _, own := range endpoints[name].own {
			require.Equal(t, want, own, name)
		}
	}
	for name, pause := range map[string]time.Duration{"in-progress": time.Second, "unavailable": 2 * time.Second, "gateway": 500 * time.Millisecond, "http-date": 500 * time.Millisecond} {
		at := endpoints[name].at
		require.GreaterOrEqual(t, at[1].Sub(at[0]), pause, name)
	}
}

// TestFetchOfNoRequest: what cannot become a request fails at once, as with fetch: nothing is
// sent, and nothing repeated.
func TestFetchOfNoRequest(t *testing.T) {
	t.Parallel()
	url, _ := startEndpoints(t)
	p := browser.New(t)
	p.Open(url)
	for _, call := range []string{`("http://[", {method: "POST"})`, `("/", {method: "A B"})`, `("/", {headers: {"a b": "c"}})`, `("/", {body: "GET has none"})`} {
		for _, function := range []string{"fetch", "latch.fetch"} {
			browser.Eval[bool](p, `(window.ended = "", Promise.race([
				`+function+call+`.catch((e) => e.name), new Promise((resolve) => setTimeout(resolve, 450, "still trying"))
			]).then((result) => { ended = "" + result; }), true)`)
			p.Await("ended")
			require.Equal(t, "TypeError", browser.Eval[string](p, "ended"), function+call)
		}
	}
}

// TestFetchAlone is the loop without a key.
func TestFetchAlone(t *testing.T) {
	t.Parallel()
	var orders atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<title>x</title>")) })
	mux.HandleFunc("POST /", func(http.ResponseWriter, *http.Request) {
		if orders.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p := browser.New(t)
	p.Expect("net::ERR_")
	p.Open(server.URL)
	browser.Eval[bool](p, `(async () => { while (!(await fetch("/", {method: "POST"}).catch(() => null))); window.ended = true; })(), true`)
	p.Await("window.ended")
	require.GreaterOrEqual(t, orders.Load(), int64(2))
}
