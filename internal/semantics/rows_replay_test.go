package semantics_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

func methodSection() section {
	guarded := func(name, practice, why string) row {
		return row{name: name, steps: again([]mod{method(name)}, []mod{method(name)}), effects: 1, practice: practice, why: why}
	}
	passes := func(name, practice string) row {
		m := submission(method(name), noBody())
		return row{name: name, handler: func(c *run) { c.WriteHeader(204) }, steps: []step{m.gets(fresh(204)), m.gets(fresh(204))}, effects: 2, practice: practice}
	}
	return section{"Methods", []row{
		passes("GET", "draft 1: idempotent; Stripe: key has no effect; bright-room/idem: replayed"),
		passes("HEAD", "draft 1"), passes("OPTIONS", "draft 1; CORS asks before every request"), passes("TRACE", "RFC 9110 9.2.1: safe"),
		passes("QUERY", "RFC 10008: safe"), passes("PROPFIND", "RFC 4918: safe"), passes("REPORT", "RFC 3253: safe"), passes("SEARCH", "RFC 5323: safe"),
		guarded("POST", "draft 1", ""), guarded("PATCH", "draft 1", ""),
		guarded("PUT", "draft 1: idempotent; idemlease: passes; celeris: guarded", "handlers of PUT count, mail and charge, too"),
		guarded("DELETE", "Stripe: key has no effect; celeris: guarded", "a repeat gets the first answer, not 404"),
		guarded("BOOKING", "idemlease: passes", "only methods that are known to be safe pass"),
		{name: "a method in lower case", only: "stdlib", because: "chi answers 405", steps: again([]mod{method("get")}, []mod{method("get")}), effects: 1, practice: "idemlease (N1): passed", why: "methods have capitals"},
	}}
}

func replaySection() section {
	answers := func(name string, f func(c *run), practice, why string, wants ...want) row {
		return row{
			name: name, handler: f, effects: 1, practice: practice, why: why,
			steps: []step{submission().gets(append([]want{ok()}, wants...)...), submission().gets(append([]want{replay()}, wants...)...)},
		}
	}
	h := func(c *run) http.Header { return c.Header() }
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = io.WriteString(zip, strings.Repeat("squeeze", 1000))
	_ = zip.Close()
	return section{"The answer again", append([]row{
		{name: "a repeat", steps: again(nil, nil), effects: 1, practice: "draft 2.6; Stripe; django-idempotency-key#25: 409"},
		{name: "the tenth repeat", steps: append(again(nil, nil), submission().gets(replay()), submission().gets(replay()), submission().gets(replay()), submission().gets(replay()), submission().gets(replay()), submission().gets(replay()), submission().gets(replay()), submission().gets(replay())), effects: 1, practice: "draft 2.6"},
		{name: "a repeat in another process", steps: again(nil, []mod{elsewhere()}), effects: 1, practice: "draft 2.6"},
		{name: "the marker", steps: []step{submission().gets(created(1), lacks("Idempotent-Replayed")), submission().gets(replay(), has("Idempotent-Replayed", "true"))}, effects: 1, practice: "Stripe, Whop: the same; idemlease: Idempotency-Replayed; WorldMonitor: false on the first"},
		{name: "the marker, sent by the client", steps: again([]mod{header("Idempotent-Replayed", "true")}, []mod{header("Idempotent-Replayed", "true")}), effects: 1, practice: "express-idempotency#35: obeyed"},
		answers("nothing written", func(*run) {}, "hono-idempotency#92: 409 for ever", "", bytesLong(0)),
		answers("a body alone", func(c *run) { _, _ = io.WriteString(c, "ok") }, "implicit 200", "", text("ok")),
		answers("a type that was sniffed", func(c *run) { _, _ = io.WriteString(c, "<!DOCTYPE html><p>ordered") }, "velmie/idempo: no headers at all", "", has("Content-Type", "text/html; charset=utf-8")),
		answers("no type at all", func(c *run) { h(c)["Content-Type"] = nil; _, _ = io.WriteString(c, "ok") }, "net/http: nil turns it off", "", lacks("Content-Type")),
		answers("`201` with `Location`", order, "fullstackhero#1333: 200 without Location", "", has("Location", "/orders/1")),
		answers("`202`", func(c *run) { c.WriteHeader(202) }, "kept by all", ""),
		answers("`204`", func(c *run) { c.WriteHeader(204) }, "RFC 9110: no Content-Length", "", lacks("Content-Length")),
		answers("`204` with a body", func(c *run) { c.WriteHeader(204); _, _ = io.WriteString(c, "ignored") }, "cowboy#285: Content-Length of it", "", lacks("Content-Length")),
		answers("`205`", func(c *run) { c.WriteHeader(205) }, "RFC 9110 15.3.6", ""),
		answers("`303` with `Location`", func(c *run) { h(c).Set("Location", "/orders/1"); c.WriteHeader(303) }, "forms: redirect after post", "", has("Location", "/orders/1")),
		answers("`304`", func(c *run) { h(c).Set("ETag", `"7"`); c.WriteHeader(304) }, "RFC 9110: no body", "", has("ETag", `"7"`)),
		answers("with `Content-Length`", func(c *run) { h(c).Set("Content-Length", "5"); _, _ = io.WriteString(c, "12345") }, "framed alike", "", has("Content-Length", "5")),
		answers("5,000 bytes without a length", func(c *run) { _, _ = io.WriteString(c, strings.Repeat("x", 5000)) }, "framed alike: in chunks", "", lacks("Content-Length")),
		answers("compressed by the handler", func(c *run) { h(c).Set("Content-Encoding", "gzip"); _, _ = c.Write(packed.Bytes()) }, "idemlease (H1): the coding was lost", "", has("Content-Encoding", "gzip")),
		answers("binary", func(c *run) { _, _ = c.Write([]byte{0, 0xff, 0xfe, '\r', '\n', 0x80}) }, "hono-idempotency: read as text", "", text("\x00\xff\xfe\r\n\x80")),
		answers("several values, and commas in them", func(c *run) {
			h(c)["Link"] = []string{`</a>; rel="x, y"`, "</b>"}
			h(c).Set("Content-Disposition", `attachment; filename="a, b"`)
		}, "fiber#4693: split", "", has("Link", `</a>; rel="x, y", </b>`)),
		answers("`ETag`, `Last-Modified`, `Cache-Control`, `Vary`", func(c *run) {
			h(c).Set("ETag", `W/"7"`)
			h(c).Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
			h(c).Set("Cache-Control", "private")
			h(c).Set("Vary", "Accept")
		}, "idemlease: five allowed names; concerns_on_rails#47", "", has("ETag", `W/"7"`), has("Vary", "Accept")),
		answers("a header without a value", func(c *run) { h(c).Set("X-Empty", "") }, "kept", "", has("X-Empty", "")),
		answers("a long header", func(c *run) { h(c).Set("X-Long", strings.Repeat("x", 8000)) }, "kept", ""),
		answers("headers set too late", func(c *run) { c.WriteHeader(202); h(c).Set("X-Late", "1") }, "net/http ignores them", "", lacks("X-Late")),
		answers("a second status", func(c *run) { c.WriteHeader(202); c.WriteHeader(500) }, "net/http ignores it", ""),
		answers("through `io.Copy`", func(c *run) { _, _ = io.Copy(c, strings.NewReader("copied")) }, "bright-room/idem: went past the record", "", text("copied")),
		{
			name: "early hints", effects: 1, practice: "RFC 8297: of the moment",
			handler: func(c *run) { h(c).Set("Link", "</a.css>; rel=preload"); c.WriteHeader(103); order(c) },
			steps:   []step{submission().gets(created(1), hinted(103)), submission().gets(replay(), hinted())},
		},
		{
			name: "a reused buffer", effects: 1, practice: "celeris#719: the record changed",
			handler: func(c *run) { b := []byte("good"); _, _ = c.Write(b); copy(b, "evil") },
			steps:   []step{submission().gets(ok(), text("good")), submission().gets(replay(), text("good"))},
		},
		{
			name: "headers of outer middleware", guard: outside(func(w http.ResponseWriter, n int64) {
				w.Header().Set("X-Request-ID", fmt.Sprint(n))
			}), effects: 1, practice: "velmie/idempo: none; fiber: all those of the first", why: "an id of another request misleads",
			steps: []step{submission().gets(created(1), has("X-Request-ID", "1")), submission().gets(status(201), has("X-Request-ID", "2"), has("Location", "/orders/1"), has("Idempotent-Replayed", "true"))},
		},
		{
			name: "a language that outer middleware chose", guard: outside(func(w http.ResponseWriter, n int64) {
				w.Header().Set("Content-Language", [...]string{"", "de", "en"}[n])
			}), effects: 1, practice: "German under `en`", why: "what describes the body is of the body",
			steps: []step{submission().gets(created(1), has("Content-Language", "de")), submission().gets(replay(), has("Content-Language", "de"))},
		},
		{
			name: "a nonce of outer middleware", guard: outside(func(w http.ResponseWriter, n int64) {
				w.Header().Set("Content-Security-Policy", fmt.Sprintf("script-src 'nonce-%d'", n))
			}), effects: 1, practice: "no script of the page runs", why: "the body has the first nonce",
			steps: []step{submission().gets(created(1), has("Content-Security-Policy", "script-src 'nonce-1'")), submission().gets(replay(), has("Content-Security-Policy", "script-src 'nonce-1'"))},
		},
		{
			name: "a header that outer middleware and the handler set", guard: outside(func(w http.ResponseWriter, _ int64) { w.Header().Set("Cache-Control", "no-cache") }),
			handler: func(c *run) { h(c).Set("Cache-Control", "private"); order(c) }, effects: 1, practice: "net/http: the last one counts",
			steps: []step{submission().gets(created(1), has("Cache-Control", "private")), submission().gets(replay(), has("Cache-Control", "private"))},
		},
		{
			name: "a header that the handler removes", guard: outside(func(w http.ResponseWriter, _ int64) { w.Header().Set("X-Powered-By", "us") }),
			handler: func(c *run) { h(c).Del("X-Powered-By"); order(c) }, effects: 1, practice: "removed again",
			steps: []step{submission().gets(created(1), lacks("X-Powered-By")), submission().gets(replay(), lacks("X-Powered-By"))},
		},
		{
			name: "a value that the handler adds", guard: outside(func(w http.ResponseWriter, _ int64) { w.Header().Add("Vary", "Origin") }),
			handler: func(c *run) { h(c).Add("Vary", "Accept"); order(c) }, effects: 1, practice: "CORS middleware adds it to every answer",
			steps: []step{submission().gets(created(1), has("Vary", "Origin, Accept")), submission().gets(replay(), has("Vary", "Origin, Accept"))},
		},
	}, sentRows()...)}
}

// outside is a guard with middleware around it that sets headers; n counts its requests.
func outside(set func(w http.ResponseWriter, n int64)) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		once := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey)
		return func(next http.Handler) http.Handler {
			guarded, n := once(next), new(atomic.Int64)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				set(w, n.Add(1))
				guarded.ServeHTTP(w, r)
			})
		}
	}
}
