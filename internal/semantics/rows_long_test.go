package semantics_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// around is a guard with middleware around it.
func around(g guard, outer func(next http.Handler) http.Handler) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		once := g(l)
		return func(next http.Handler) http.Handler { return outer(once(next)) }
	}
}

// parsing reads the form, as middleware against forged requests does.
func parsing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseMultipartForm(1 << 20) // of other types it says so
		next.ServeHTTP(w, r)
	})
}

// reading reads the body, and does not put it back.
func reading(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		next.ServeHTTP(w, r)
	})
}

// beginning reads the first bytes of the body, and does not put them back.
func beginning(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 4)
		next.ServeHTTP(w, r)
	})
}

// longRows are the rows of a section that need more than a line each: middleware
// around the guard, functions that fail, crowds.
func longRows(title string) []row {
	return map[string][]row{
		"Whose request, and for what":       pathRows(),
		"Forms, files and keys in the body": outsideRows(),
		"Limits":                            keyLimitRows(),
		"What a refusal looks like":         failedKeyRows(),
		"Which answers are kept":            againRows(),
		"The answer again":                  sentRows(),
		"Streams and taken connections":     outerTrailerRows(),
		"`Lock`: one at a time":             bodyFirstRows(),
		"While the first runs":              crowdRows(),
	}[title]
}

func pathRows() []row {
	return []row{
		{name: "a semicolon, escaped or not", steps: again([]mod{target("/orders/a;b/pay")}, []mod{target("/orders/a%3Bb/pay")}), effects: 1, practice: "most: two", why: "one path to the application"},
		{name: "a comma, escaped or not", steps: again([]mod{target("/orders/a,b/pay")}, []mod{target("/orders/a%2Cb/pay")}), effects: 1, practice: "most: two", why: "one path to the application"},
	}
}

func outsideRows() []row {
	parsed := around(idempotent(), parsing)
	deduped := around(func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, time.Hour) }, parsing)
	consumed := problem(http.StatusInternalServerError, "body-consumed", "")
	one := multi("one", "a", "x.png", "pixels")
	behind := mod{"with something behind its parts", func(r *request) { one.apply(r); r.body += "--one\nX" }}
	related := func(start string) mod {
		return as("as multipart/related that starts with "+start, typed("multipart/related; boundary=b; start="+start, "--b\r\nContent-ID: x\r\n\r\n1\r\n--b\r\nContent-ID: y\r\n\r\n2\r\n--b--\r\n"))
	}
	return []row{
		{name: "parsed outside, the same", guard: parsed, steps: again([]mod{form("sku=tea")}, []mod{form("sku=tea")}), effects: 1, practice: "most: the empty body"},
		{name: "parsed outside, another", guard: parsed, steps: other([]mod{form("sku=tea")}, []mod{form("sku=coffee")}), effects: 1, practice: "IdempotentAPI#58: hash of nothing, replayed"},
		{name: "parsed outside, in the query", guard: parsed, steps: other([]mod{form("sku=tea&a=1")}, []mod{target("/orders?sku=tea"), form("a=1")}), effects: 1, practice: "r.Form mixes the two"},
		{name: "multipart parsed outside, another boundary", guard: parsed, steps: again([]mod{one}, []mod{multi("two", "a", "x.png", "pixels")}), effects: 1, practice: "most: the empty body"},
		{name: "multipart parsed outside, another file", guard: parsed, steps: other([]mod{one}, []mod{multi("one", "a", "x.png", "pixelz")}), effects: 1, practice: "most: the empty body, replayed"},
		{name: "parsed outside of `Dedupe`, another", guard: deduped, steps: twice([]mod{form("sku=tea")}, []mod{form("sku=coffee")}), effects: 2, practice: "most: the empty body, replayed"},
		{name: "a key in a field, parsed outside", guard: around(keyedBy(keyfunc.Form("once")), parsing), steps: other([]mod{form("once=a&sku=tea")}, []mod{form("once=a&sku=coffee")}), effects: 1, practice: "most: the empty body, replayed"},
		{name: "read outside, and gone", guard: around(idempotent(), reading), steps: []step{submission().gets(consumed)}, practice: "IdempotentAPI#58: hash of nothing", why: "it cannot be distinguished from other requests"},
		{name: "read outside in part", guard: around(idempotent(), beginning), steps: []step{submission().gets(consumed)}, practice: "most: the rest is compared", why: "two orders may end alike"},
		{name: "read outside, and gone, with its key", guard: around(keyedBy(keyfunc.JSON("/id")), reading), steps: []step{submission(body(`{"id":1}`)).gets(consumed)}, practice: "usual", why: "the mistake is the server's"},
		{name: "something behind the parts", steps: other([]mod{one}, []mod{behind}), effects: 1, practice: "readers of the parts do not see it"},
		{name: "another parameter of multipart", steps: other([]mod{related("x")}, []mod{related("y")}), effects: 1, practice: "readers of the parts do not see it"},
	}
}

func keyLimitRows() []row {
	const mib = 1 << 20
	long := as("with a JSON body of 1.5 MiB", body(`{"id":1,"x":"`+strings.Repeat("x", mib*3/2)+`"}`))
	return []row{
		{name: "a key in a body over 1 MiB, allowed", guard: keyedBy(keyfunc.JSON("/id"), latch.WithBodyLimits(2*mib, mib)), steps: []step{submission(long).gets(created(1)), submission(long).gets(replay())}, effects: 1, practice: "one limit"},
		{name: "a key in a body over the limit", guard: keyedBy(keyfunc.JSON("/id"), latch.WithBodyLimits(10, mib)), steps: []step{submission(body(`{"id":12345}`)).gets(problem(413, "body-too-large", ""))}, practice: "one limit"},
	}
}

func failedKeyRows() []row {
	fails := func(err error) guard { return keyedBy(func(*http.Request) (string, error) { return "", err }) }
	challenge := &keyfunc.Error{Status: 401, Err: errSecret, Header: http.Header{"Www-Authenticate": {`Bearer realm="shop"`}}}
	echo := latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		sent, _ := io.ReadAll(r.Body)
		w.WriteHeader(p.Status)
		_, _ = w.Write(sent)
	})
	return []row{
		{name: "a key function that fails", guard: fails(errSecret), steps: []step{submission().gets(problem(500, "key-failed", ""), without(errSecret.Error()))}, practice: "httprate: 428", why: "not the client's mistake"},
		{name: "a `401` with its challenge", guard: fails(challenge), steps: []step{submission().gets(problem(401, "unauthenticated", ""), has("WWW-Authenticate", `Bearer realm="shop"`))}, practice: "RFC 9110 15.5.2: MUST"},
		{name: "an application's own, from the body", guard: idempotent(echo), steps: []step{submission().gets(created(1)), submission(body("coffee")).gets(status(422), text("coffee"))}, effects: 1, practice: "a form is shown again, with what was typed"},
	}
}

func againRows() []row {
	later := func(status int) func(c *run) {
		return func(c *run) {
			if c.n > 1 {
				order(c)
				return
			}
			c.Header().Set("Retry-After", "2")
			c.WriteHeader(status)
		}
	}
	upstream := func(kind, mark string) func(c *run) {
		return func(c *run) {
			if c.n > 1 {
				order(c)
				return
			}
			c.Header().Set("Content-Type", "application/problem+json")
			if mark != "" {
				c.Header().Set("Latch-Problem", mark)
			}
			c.WriteHeader(409)
			_, _ = fmt.Fprintf(c, `{"type":%q,"title":"t","status":409}`, kind)
		}
	}
	runs := []step{submission().gets(fresh(409)), submission().gets(created(2))}
	kept := func(status int) []step { return []step{submission().gets(fresh(status)), submission().gets(replay())} }
	return []row{
		{name: "`409` with `Retry-After`", handler: later(409), steps: runs, effects: 2, practice: "most: kept, by its status", why: "it announces that a later answer will differ"},
		{name: "`422` with `Retry-After`", handler: later(422), steps: []step{submission().gets(fresh(422)), submission().gets(created(2))}, effects: 2, practice: "most: kept, by its status", why: "it announces that a later answer will differ"},
		{name: "`202` with `Retry-After`", handler: later(202), steps: kept(202), effects: 1, practice: "RFC 9110 10.2.3: when to look again"},
		{name: "`303` with `Retry-After`", handler: later(303), steps: kept(303), effects: 1, practice: "RFC 9110 10.2.3: when to look again"},
		{name: "`409` with `Retry-After`, after `Commit`", early: committed, handler: later(409), steps: kept(409), effects: 1, practice: "no other known"},
		{name: "`409` with `Retry-After`, kept by `WithFinal`", guard: idempotent(latch.WithFinal(func(int) bool { return true })), handler: later(409), steps: kept(409), effects: 1, practice: "idemlease: Policy"},
		{name: "a refusal of a guarded service behind", handler: upstream(problemBase+"in-progress", "in-progress"), steps: runs, effects: 2, practice: "most: kept for a day", why: "it describes only that moment"},
		{name: "a refusal of a guarded service behind, without Retry-After", handler: upstream(problemBase+"outcome-unknown", "outcome-unknown"), steps: runs, effects: 2, practice: "most: kept for a day", why: "an operator may free it"},
		{name: "another problem of a service behind", handler: upstream("https://example.com/sold-out", ""), steps: kept(409), effects: 1, practice: "kept by most"},
	}
}

func sentRows() []row {
	vary := outside(func(w http.ResponseWriter, n int64) {
		if n > 1 {
			w.Header().Set("Vary", "Origin")
		}
	})
	return []row{
		{name: "a value that outer middleware adds only to the repeat", guard: vary, handler: func(c *run) { c.Header().Add("Vary", "Accept"); order(c) }, effects: 1, practice: "CORS middleware adds it by the request", steps: []step{
			submission().gets(created(1), has("Vary", "Accept")), submission().gets(status(201), has("Vary", "Origin, Accept"), has("Idempotent-Replayed", "true")),
		}},
		{name: "a name that net/http does not send", handler: func(c *run) { c.Header()[":Location"] = []string{"/x"}; c.WriteHeader(202) }, effects: 1, practice: "dropped in the first answer", steps: []step{
			submission().gets(fresh(202), lacks("Location", ":Location")), submission().gets(replay(), lacks("Location", ":Location")),
		}},
		{name: "a value with a line break", handler: func(c *run) { c.Header().Set("X-Text", "a\r\nb"); c.WriteHeader(202) }, effects: 1, practice: "net/http: blanks in their place", steps: []step{
			submission().gets(fresh(202), has("X-Text", "a  b")), submission().gets(replay(), has("X-Text", "a  b")),
		}},
	}
}

func outerTrailerRows() []row {
	timing := around(idempotent(), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Trailer", "Server-Timing")
			next.ServeHTTP(w, r)
			w.Header().Set("Server-Timing", "total;dur=1")
		})
	})
	sized := func(c *run) { c.Header().Set("Content-Length", "18"); flushing(c) }
	events := "data: 1\n\ndata: 2\n\n"
	return []row{{name: "flushed, with `Content-Length`", early: sized, handler: more, effects: 1, practice: "most: cannot be replayed", why: "with its length it is whole, and no stream", steps: []step{
		submission().gets(ok(), text(events)), submission().gets(replay()),
	}}, {name: "flushed when it is whole, and its handler goes on", early: func(c *run) { sized(c); more(c); _ = http.NewResponseController(c.ResponseWriter).Flush() }, handler: func(*run) {}, effects: 1, practice: "most: cannot be replayed", why: "its client has it, and so has its repeat", steps: []step{
		submission().begins(), submission().gets(status(200), text(events), has("Idempotent-Replayed", "true")), finish(ok(), text(events)), submission().gets(replay()),
	}}, {name: "trailers of outer middleware", guard: timing, effects: 1, practice: "chi, otel: Server-Timing", steps: []step{
		submission().gets(created(1), trailer("Server-Timing", "total;dur=1")),
		submission().gets(status(201), text(`{"order":1}`), has("Idempotent-Replayed", "true"), trailer("Server-Timing", "total;dur=1")),
	}}}
}

func bodyFirstRows() []row {
	reads := func(c *run) { _, _ = io.Copy(io.Discard, c.req.Body); order(c) }
	first := locked(latch.WithBodyFirst(100))
	return []row{
		{name: "a body that does not end, `WithBodyFirst`", guard: first, handler: reads, steps: []step{submission().stalls(), submission().gets(created(1))}, effects: 1, practice: "no other known", why: "an outsider could keep the owner out"},
		{name: "a body over the limit of `WithBodyFirst`", guard: first, handler: reads, steps: []step{submission(big(101)).gets(problem(413, "body-too-large", "")), submission().gets(created(1))}, effects: 1, practice: "usual"},
		{name: "a body that breaks off, `WithBodyFirst`", guard: first, handler: reads, steps: []step{submission(short(5)).gets(problem(400, "body-unreadable", ""))}, practice: "the handler sees a short body"},
		{name: "the body behind `WithBodyFirst`", guard: first, handler: func(c *run) { _, _ = io.Copy(c, c.req.Body) }, steps: []step{submission().gets(ok(), text(`{"sku":"tea"}`))}, effects: 1, practice: "as it was sent"},
		{name: "cool-down, `WithCooldownStatus(409)`", guard: locked(latch.WithCooldown(time.Hour), latch.WithCooldownStatus(409)), steps: []step{submission().gets(created(1)), submission().gets(problem(409, "cooling-down", ""))}, effects: 1, practice: "clients repeat a 429 automatically", why: "the repeat would be a new order"},
	}
}

func crowdRows() []row {
	notKept := has("Idempotent-Replayed", "not-kept")
	return []row{
		{name: "64 repeats of an answered request at once", steps: []step{submission().gets(created(1)), submission().crowd(64, replay()), submission(elsewhere()).crowd(64, replay())}, effects: 1, practice: "draft 2.6"},
		{name: "sixty that wait for a request that fails", handler: failing(500), steps: []step{submission().begins(), submission().wait(60), finish(fresh(500)), waited(status(500), text("run 1"), notKept), submission().gets(created(2))}, effects: 2, practice: "velmie: an error; most: sixty runs", why: "sixty waiting repeats must not become sixty tries"},
		{name: "waiting for one that answers `429`", handler: failing(429), steps: []step{submission().begins(), submission().wait(1), finish(fresh(429)), waited(status(429), notKept), submission().gets(created(2))}, effects: 2, practice: "velmie: an error"},
		{name: "waiting for one that answers `401`", handler: failing(401), steps: []step{submission().begins(), submission().wait(1), finish(fresh(401)), waited(created(2)), submission().gets(replay())}, effects: 2, practice: "most: 401", why: "the next caller may be signed in, so it runs"},
		{name: "waiting for one that panics", handler: func(*run) { panic("boom") }, steps: []step{submission().begins(), submission().wait(1), finish(none()), waited(problem(503, "first-failed", "1"))}, effects: 1, practice: "velmie: an error", why: "nothing was answered, and one try is enough"},
	}
}
