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
	return section{"`Lock`: one at a time", []row{
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
		{name: "the handler panics", guard: one, handler: func(c *run) {
			if c.n == 1 {
				panic("boom")
			}
			order(c)
		}, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "laravel#37060: locked for ever"},
		{name: "the handler ends its goroutine", guard: one, handler: func(c *run) {
			if c.n == 1 {
				goexit()
			}
			order(c)
		}, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "held until it expires"},
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
		{name: "no cool-down after `103`, then `500`", guard: cool, handler: func(c *run) {
			if c.n == 1 {
				c.WriteHeader(103)
				c.WriteHeader(500)
				return
			}
			order(c)
		}, steps: []step{submission().gets(fresh(500), hinted(103)), submission().gets(created(2))}, effects: 2, practice: "RFC 8297: the final one counts"},
		{name: "no cool-down after a panic", guard: cool, handler: func(c *run) {
			if c.n == 1 {
				panic("boom")
			}
			order(c)
		}, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "RuoYi-Vue: all the same"},
		{name: "the cool-down is over", guard: locked(latch.WithCooldown(300 * time.Millisecond)), steps: []step{submission().gets(created(1)), submission().comes(created(2))}, effects: 2, practice: "RuoYi"},
		{name: "a body that does not end", guard: one, handler: func(c *run) { _, _ = io.Copy(io.Discard, c.req.Body); order(c) }, steps: []step{submission().stalls(), handled(), submission().gets(heldBy())}, effects: 1, practice: "every lock", why: "the handler reads it: `WithBodyFirst`, or a read timeout"},
	}}
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
		{name: "a panic frees both", guard: nest(latch.WithCooldown(time.Hour)), handler: func(c *run) {
			if c.n == 1 {
				panic("boom")
			}
			order(c)
		}, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "most: locked"},
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
