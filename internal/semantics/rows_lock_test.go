package semantics_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// locked is Lock per user.
func locked(opts ...latch.LockOption) guard { return lockedBy(byUser, opts...) }

func lockedBy(f keyfunc.Func, opts ...latch.LockOption) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", f, opts...) }
}

// cooling is the refusal within an hour's cool-down.
func cooling(status int) want { return restOfAnHour(status, "cooling-down") }

// heldForAnHour is the refusal of a key that WithUnknownHold keeps taken for an hour.
func heldForAnHour() want { return restOfAnHour(http.StatusConflict, "held") }

// restOfAnHour is a refusal that says how much of an hour is left.
func restOfAnHour(status int, kind string) want {
	return want{fmt.Sprintf("`%d` [%s](../problems.md#%s), `Retry-After`: what is left", status, kind, kind), func(w *world, a *answer) error {
		left, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil || left < 3000 || left > 3600 {
			return fmt.Errorf("want what is left of an hour in Retry-After: %q", a.header.Get("Retry-After"))
		}
		return problem(status, kind, a.header.Get("Retry-After")).check(w, a)
	}}
}

// untilGone works until the client has gone, if the request asks for a stop.
func untilGone(c *run) {
	if c.req.Header.Get("X-Hold") != "" {
		c.req.Header.Del("X-Hold")
		_, _ = io.Copy(io.Discard, c.req.Body) // until then, net/http does not look for the client
		c.world.entered <- struct{}{}
		c.gone()
	}
}

func lockSection() section {
	one := locked()
	cool := locked(latch.WithCooldown(time.Hour))
	free := func(name string, status int, practice string) row {
		return row{name: name, guard: cool, handler: failing(status), steps: []step{submission().gets(fresh(status)), submission().gets(created(2))}, effects: 2, practice: practice}
	}
	cools := func(name string, handler func(c *run), practice string) row {
		return row{name: name, guard: cool, handler: handler, steps: []step{submission().gets(ok()), submission().gets(cooling(429))}, effects: 1, practice: practice}
	}
	contention := func(status int, practice string) row {
		return row{name: fmt.Sprintf("held, `WithContentionStatus(%d)`", status), guard: locked(latch.WithContentionStatus(status)), steps: []step{submission().begins(), submission().gets(problem(status, "held", "1")), finish(created(1))}, effects: 1, practice: practice}
	}
	pay := lockedBy(keyfunc.PathValue("id"))
	return section{"`Lock`: one at a time", append([]row{
		{name: "one after the other", guard: one, steps: []step{submission().gets(created(1)), submission().gets(created(2))}, effects: 2, practice: "every lock"},
		{name: "held", guard: one, steps: []step{submission().begins(), submission().gets(heldBy()), finish(created(1)), submission().gets(created(2))}, effects: 2, practice: "Lock4j: an exception; WebDAV: 423"},
		{name: "held, in another process", guard: one, steps: []step{submission().begins(), submission(elsewhere()).gets(heldBy()), finish(created(1))}, effects: 1, practice: "usual"},
		{name: "held, another body and key", guard: one, steps: []step{submission().begins(), submission(key("other"), body("{}")).gets(heldBy()), finish(created(1))}, effects: 1, practice: "by user alone"},
		{name: "another user", guard: one, steps: []step{submission().begins(), submission(user("43")).gets(created(2)), finish(created(1))}, effects: 2, practice: "all: the same"},
		contention(423, "WebDAV (RFC 4918)"), contention(425, "RFC 8470"), contention(429, "idempo (Ruby)"),
		{name: "waiting", guard: one, locker: []lock.Option{lock.WithWait(patience)}, steps: []step{submission().begins(), submission().wait(1), finish(created(1)), waited(created(2))}, effects: 2, practice: "Laravel block(10, 10)"},
		{name: "waiting for too long", guard: one, locker: []lock.Option{lock.WithWait(50 * time.Millisecond)}, steps: []step{submission().begins(), submission().gets(heldBy()), finish(created(1))}, effects: 1, practice: "Lock4j: 3 s, then an error"},
		{name: "ten more at once", guard: one, steps: []step{submission().begins(), submission().crowd(10, heldBy()), finish(created(1))}, effects: 1, practice: "tienchin-video#1: both"},
		{name: "`GET` meanwhile", guard: one, steps: []step{submission().begins(), submission(method("GET"), noBody()).gets(created(2)), finish(created(1))}, effects: 2, practice: "RFC 9110 9.2.1: safe"},
		{name: "no key", guard: one, steps: []step{submission(header("X-User-ID")).gets(missing())}, practice: "arun0009: unprotected"},
		{name: "no key, `Optional`", guard: lockedBy(keyfunc.Optional(byUser)), steps: []step{submission(header("X-User-ID")).begins(), submission(header("X-User-ID")).gets(created(2)), finish(created(1))}, effects: 2, practice: "asked for by name"},
		{name: "a key over 1 KiB", guard: one, steps: []step{submission(as("as a user of 1,024 bytes", user(strings.Repeat("u", 1024)))).gets(invalid())}, practice: "most: no limit"},
		{name: "a key over 1 KiB, `Hash`", guard: lockedBy(keyfunc.Hash(byUser)), steps: []step{submission(as("as a user of 1,024 bytes", user(strings.Repeat("u", 1024)))).gets(created(1))}, effects: 1, practice: "usual"},
		{name: "one order, spelled otherwise", guard: pay, steps: []step{submission(target("/orders/7/pay")).begins(), submission(target("/orders/%37/pay")).gets(heldBy()), submission(target("/orders/8/pay")).gets(created(2)), finish(created(1))}, effects: 2, practice: "chi: two values, a way past the lock"},
		{name: "a worker has it", guard: one, steps: []step{
			then("a worker acquires `lock.Key(\"user\", \"42\")`", func(w *world) error {
				lease, err := w.to(&request{second: true}).locker.Acquire(w.context(), lock.Key("user", "42"))
				w.lease = lease
				return err
			}), submission().gets(heldBy()), submission(user("43")).gets(created(1)),
		}, effects: 1, practice: "one name for both"},
		{name: "the handler panics", guard: one, handler: panicking, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "laravel#37060: locked for ever"},
		{name: "the handler ends its goroutine", guard: one, handler: firstly(func(*run) { goexit() }), steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "held until it expires"},
		{name: "the client hangs up", guard: one, early: untilGone, steps: []step{submission().leaves(), submission().comes(created(2))}, effects: 2, practice: "net/http: context ends"},
		{name: "the process dies, its lease runs", guard: one, faulty: true, steps: []step{submission().begins(), vanishes(), submission(elsewhere()).gets(heldBy())}, effects: 1, practice: "activejob-uniqueness#14: until an operator unlocks it"},
		{name: "the process dies, its lease is over", guard: one, faulty: true, brief: true, steps: []step{
			submission().begins(), dies(), submission(elsewhere()).gets(created(2)),
		}, effects: 2, practice: "a SETNX with two hours: two hours"},
		{name: "an operator removes it", guard: one, faulty: true, steps: []step{submission().begins(), forgotten(), submission(elsewhere()).gets(created(2)), finish(created(1))}, effects: 2, practice: "asked for (activejob-uniqueness#34)"},
		{name: "the store is down", guard: one, faulty: true, shortBudget: true, steps: []step{down(), submission().gets(unavailable()), up(), submission().comes(created(1))}, effects: 1, practice: "novu#4531: 503; most: 500"},
		{name: "the store is down, `WithFailOpen`", guard: locked(latch.WithFailOpen()), faulty: true, shortBudget: true, steps: []step{down(), submission().begins(), submission().gets(heldBy()), finish(created(1)), submission().gets(created(2))}, effects: 2, practice: "most: both run", why: "this process knows"},
		{name: "shut down", guard: one, steps: []step{shut(), submission().gets(shuttingDown())}, practice: "usual"},
		{name: "cool-down after `201`", guard: cool, steps: []step{submission().gets(created(1)), submission().gets(cooling(429)), submission(elsewhere()).gets(cooling(429)), submission(user("43")).gets(created(2))}, effects: 2, practice: "RuoYi: an error for 5 s"},
		cools("cool-down after nothing written", func(*run) {}, "RuoYi-Vue-Plus: kept after a success"),
		cools("cool-down after `303`", func(c *run) { c.WriteHeader(303) }, "RuoYi-Vue-Plus: kept after a success"),
		cools("cool-down after a stream", func(c *run) { flushing(c); more(c) }, "RuoYi-Vue-Plus: kept after a success"),
		free("no cool-down after `400`", 400, "RuoYi-Vue: all the same; Plus: freed"),
		free("no cool-down after `500`", 500, "RuoYi-Vue: all the same; Plus: freed"),
		{name: "no cool-down after `103`, then `500`", guard: cool, handler: firstly(func(c *run) {
			c.WriteHeader(103)
			c.WriteHeader(500)
		}), steps: []step{submission().gets(fresh(500), hinted(103)), submission().gets(created(2))}, effects: 2, practice: "RFC 8297: the final one counts"},
		{name: "no cool-down after a panic", guard: cool, handler: panicking, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "RuoYi-Vue: all the same"},
		{name: "the cool-down is over", guard: locked(latch.WithCooldown(300 * time.Millisecond)), steps: []step{submission().gets(created(1)), submission().comes(created(2))}, effects: 2, practice: "RuoYi"},
		{name: "a body that does not end", guard: one, handler: func(c *run) { _, _ = io.Copy(io.Discard, c.req.Body); order(c) }, steps: []step{submission().stalls(), handled(), submission().gets(heldBy())}, effects: 1, practice: "every lock", why: "the handler reads it: `WithBodyFirst`, or a read timeout"},
	}, bodyFirstRows()...)}
}

func nestedSection() section {
	nest := func(opts ...latch.LockOption) guard {
		return func(l *lock.Locker) func(http.Handler) http.Handler {
			once, one := idempotent()(l), locked(opts...)(l)
			return func(next http.Handler) http.Handler { return once(one(next)) }
		}
	}
	wrong := guard(func(l *lock.Locker) func(http.Handler) http.Handler {
		once, one := idempotent()(l), locked(latch.WithCooldown(time.Hour))(l)
		return func(next http.Handler) http.Handler { return one(once(next)) }
	})
	deduped := guard(func(l *lock.Locker) func(http.Handler) http.Handler {
		outer, once := latch.Dedupe(l, byUser, time.Hour), idempotent()(l)
		return func(next http.Handler) http.Handler { return outer(once(next)) }
	})
	odd := latch.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ *latch.Problem) { w.WriteHeader(200) })
	within := guard(func(l *lock.Locker) func(http.Handler) http.Handler {
		once := idempotent()(l)
		return func(next http.Handler) http.Handler {
			return http.TimeoutHandler(once(next), 2*time.Second, "too late")
		}
	})
	b := key("b")
	return section{"Guards inside guards", []row{
		{name: "a repeat", guard: nest(), steps: again(nil, nil), effects: 1, practice: "two libraries: refused by the lock"},
		{name: "a repeat in the cool-down", guard: nest(latch.WithCooldown(time.Hour)), steps: []step{submission().gets(created(1)), submission().gets(replay()), submission(b).gets(cooling(429))}, effects: 1, practice: "Stripe: limits outside", why: "a repeat costs nothing"},
		{name: "a duplicate while it runs", guard: nest(), steps: []step{submission().begins(), submission().asks(), finish(created(1)), waited(replay())}, effects: 1, practice: "draft 2.7: 409"},
		{name: "another key while the lock is held", guard: nest(), steps: []step{submission().begins(), submission(b).gets(heldBy()), finish(created(1)), submission(b).gets(created(2))}, effects: 2, practice: "Stripe: conflicts are not kept"},
		{name: "refused in the cool-down, and not kept", guard: nest(latch.WithCooldown(time.Second)), steps: []step{submission().gets(created(1)), submission(b).comes(created(2)), submission(b).gets(replay())}, effects: 2, practice: "Stripe: 429 is not kept"},
		{name: "refused with `423`, and not kept", guard: nest(latch.WithContentionStatus(423)), steps: []step{submission().begins(), submission(b).gets(problem(423, "held", "1")), finish(created(1)), submission(b).gets(created(2))}, effects: 2, practice: "most: kept, by its status"},
		{name: "refused with `200` by an error handler, and not kept", guard: nest(odd), steps: []step{submission().begins(), submission(b).gets(status(200)), finish(created(1)), submission(b).gets(created(2))}, effects: 2, practice: "most: kept, by its status"},
		{name: "a failure frees both", guard: nest(latch.WithCooldown(time.Hour)), handler: failing(500), steps: []step{submission().gets(fresh(500)), submission().gets(created(2))}, effects: 2, practice: "most: the same"},
		{name: "a panic frees both", guard: nest(latch.WithCooldown(time.Hour)), handler: panicking, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "most: locked"},
		{name: "the lock outside", guard: wrong, steps: []step{submission().gets(created(1)), submission().gets(cooling(429))}, effects: 1, practice: "the wrong order", why: "it is logged, once, with the cure"},
		{name: "the same guard twice", guard: doubled(idempotent()), steps: []step{submission().begins(), submission().wait(1), finish(created(1)), waited(replay())}, effects: 1, practice: "refused for ever", why: "the inner one steps aside, and that is logged, once, with the cure"},
		{name: "the same lock twice", guard: doubled(locked()), steps: []step{submission().begins(), submission().gets(heldBy()), finish(created(1)), submission().gets(created(2))}, effects: 2, practice: "refused for ever", why: "the inner one steps aside"},
		{name: "a key missing inside `Dedupe`", guard: deduped, steps: []step{submission(key()).gets(missing()), submission().gets(created(1))}, effects: 1, practice: "most: kept, by its status"},
		{name: "`http.TimeoutHandler` outside", guard: within, steps: []step{submission().begins(), timedOut(), goesOn(), submission().comes(status(201), text(`{"order":1}`), has("Idempotent-Replayed", "true"))}, effects: 1, practice: "Laravel: timeouts leave locks"},
		{name: "a middleware outside answers `401`", guard: func(l *lock.Locker) func(http.Handler) http.Handler {
			once := idempotent()(l)
			return func(next http.Handler) http.Handler {
				guarded := once(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization") == "" {
						w.WriteHeader(401)
						return
					}
					guarded.ServeHTTP(w, r)
				})
			}
		}, steps: []step{submission(header("Authorization", "Bearer a")).gets(created(1)), submission().gets(status(401)), submission(header("Authorization", "Bearer b")).gets(replay())}, effects: 1, practice: "Echo Pro: authorised again before a replay"},
	}}
}

// doubled mounts one guard twice, as around the router and on the route.
func doubled(g guard) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		once := g(l)
		return func(next http.Handler) http.Handler { return once(once(next)) }
	}
}

// timedOut is the answer that the client of an http.TimeoutHandler sees.
func timedOut() step {
	return step{sent: "it takes too long", wants: []want{status(503), text("too late")}, run: func(w *world, s *step) error { return s.collect(w, &w.held) }}
}

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
		return firstly(func(c *run) {
			c.Header().Set("Retry-After", "2")
			c.WriteHeader(status)
		})
	}
	upstream := func(kind, mark string) func(c *run) {
		return firstly(func(c *run) {
			c.Header().Set("Content-Type", "application/problem+json")
			if mark != "" {
				c.Header().Set("Latch-Problem", mark)
			}
			c.WriteHeader(409)
			_, _ = fmt.Fprintf(c, `{"type":%q,"title":"t","status":409}`, kind)
		})
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
