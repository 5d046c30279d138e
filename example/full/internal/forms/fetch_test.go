package forms_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/cors"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// endpoint is the target of a script: the n-th attempt ends as the case says, others are served.
type endpoint struct {
	mu   sync.Mutex
	keys []string
	own  []string // header of the page

	effects atomic.Int64
}

func (e *endpoint) arrived(r *http.Request) (attempt int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys = append(e.keys, r.Header.Get("Idempotency-Key"))
	e.own = append(e.own, r.Header.Get("X-Own"))
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

func lost(attempt int, serve func(http.ResponseWriter), w http.ResponseWriter) {
	if attempt > 1 {
		serve(w)
		return
	}
	serve(httptest.NewRecorder())
	panic(http.ErrAbortHandler)
}

func refused(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = fmt.Fprint(w, `{"type":"#refused"}`)
}

func lostThenRefused(attempt int, serve func(http.ResponseWriter), w http.ResponseWriter) {
	if attempt > 1 {
		refused(w)
		return
	}
	lost(attempt, serve, w)
}

// keptCall has a key that the script keeps for a form.
const keptCall = `(sessionStorage[name] = name, latch.fetch(url, {method: "POST", body: new URLSearchParams({once: name})}))`

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

var fetchCases = []fetchCase{
	{"served", plainCall, nil, 1, 1, "201 effect 1"},
	{"lost", plainCall, lost, 2, 1, "201 effect 1"},
	{"unavailable", plainCall, problem("unavailable", 503, "2"), 2, 1, "201 effect 1"},
	{"held", plainCall, problem("held", 409, "1"), 1, 0, "409 held"},
	{"aborted", abortedCall, problem("unavailable", 503, "50"), 1, 0, "AbortError"},
	{"own-key", `(sessionStorage.mine = "own", latch.fetch(url, {method: "POST", headers: {"Idempotency-Key": "own"}, body: "tea"}))`, lost, 2, 1, "201 effect 1"},
	{"request", requestCall, lost, 2, 1, "201 effect 1"},
	{"request-and-headers", strings.Replace(requestCall, "}))", `}), {headers: {"X-Own": "instead"}})`, 1), lost, 2, 1, "201 effect 1"},
	{"lost-and-refused", strings.ReplaceAll(keptCall, "name", `"latch1"`), lostThenRefused, 2, 1, "404 refused"},
	{"refused", strings.ReplaceAll(keptCall, "name", `"latch2"`), func(_ int, _ func(http.ResponseWriter), w http.ResponseWriter) { refused(w) }, 1, 0, "404 refused"},
	{
		"redirected", `(sessionStorage.latch3 = "latch3",
		latch.fetch(url, {method: "POST", redirect: "manual", headers: {"Idempotency-Key": "latch3"}}).then((r) => new Response(r.type)))`,
		func(_ int, _ func(http.ResponseWriter), w http.ResponseWriter) {
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusSeeOther)
		}, 1, 0, "200 opaqueredirect",
	},
	{"of-a-form", `latch.fetch(url, {method: "POST", body: new URLSearchParams("once=of-form")})`, lost, 2, 1, "201 effect 1"},
}

func startEndpoints(t *testing.T) (url string, endpoints map[string]*endpoint) {
	t.Helper()
	once := latch.Idempotent(guardtest.NewLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)
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
	return serve(t, mux), endpoints
}

// TestFetch: each call ends, with one key for all its attempts. The tests of js have each refusal, the pauses, and the
// twin: fetch itself, in a loop that many pages have.
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
	require.Equal(t, "latch1 - -", browser.Eval[string](p, `["latch1", "latch2", "latch3"].map((name) => sessionStorage[name] ?? "-").join(" ")`),
		"a refusal without a kind says nothing about an attempt before it, and a redirect that is not followed is an answer")
	require.Equal(t, "own", endpoints["own-key"].keys[0])
	require.Equal(t, "own", browser.Eval[string](p, "sessionStorage.mine"), "an entry of the page")
	require.Equal(t, "of-form", endpoints["of-a-form"].keys[0])
	for name, want := range map[string]string{"request": "mine", "request-and-headers": "instead"} {
		for _, own := range endpoints[name].own {
			require.Equal(t, want, own, name)
		}
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

// TestScriptsOfOtherOrigins: with the names of this package, a browser lets a script of another
// origin send a key, and read each header of a guard. Without them, it does not send the request.
func TestScriptsOfOtherOrigins(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Quick, "starts a browser")
	locker := guardtest.NewLocker(t, memstore.New())
	runs := 0
	guarded := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.ACP(), latch.WithLifetimeHeader())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(http.StatusCreated)
		}))
	open := cors.New(cors.Options{
		AllowedOrigins: []string{"*"}, AllowedMethods: []string{http.MethodPost},
		AllowedHeaders: append(latch.RequestHeaders(), "Content-Type"), ExposedHeaders: latch.ResponseHeaders(),
	}).Handler(guarded)
	closed := cors.New(cors.Options{AllowedOrigins: []string{"*"}, AllowedMethods: []string{http.MethodPost}, AllowedHeaders: []string{"Content-Type"}}).Handler(guarded)
	shop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Shop</title><p>Shop</p>`)
	}))
	p := browser.New(t)
	p.Expect("CORS")
	p.Expect("ERR_FAILED")
	p.Expect("status of 422")
	p.Open(shop)
	order := func(api, key, body string) string {
		script := fmt.Sprintf(`(window.said = "", fetch(%q, {method: "POST", headers: {"Idempotency-Key": %q, "Content-Type": "application/json"}, body: %q})
			.then(a => [a.status, a.headers.get("Idempotency-Key"), a.headers.get("Idempotent-Replayed"), a.headers.get("Idempotency-Key-Lifetime") > 0,
				a.headers.get("Latch-Problem")].join(" "), e => "" + e).then(s => { window.said = s }), true)`, api+"/orders", key, body)
		browser.Eval[bool](p, script)
		p.Await("window.said")
		return browser.Eval[string](p, "window.said")
	}
	api := serve(t, open)
	require.Equal(t, "201 k  true ", order(api, "k", `{}`))
	require.Equal(t, "201 k true true ", order(api, "k", `{}`))
	require.Equal(t, "422 k  false key-reused", order(api, "k", `{"sku":"tea"}`))
	require.Equal(t, 1, runs)

	require.Contains(t, order(serve(t, closed), "l", `{}`), "Failed to fetch")
	require.Equal(t, 1, runs, "a preflight has refused it")
}
