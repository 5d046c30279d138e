package semantics_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// shut closes the Locker of the first process.
func shut() step {
	return then("the process shuts down", func(w *world) error {
		ctx, cancel := context.WithTimeout(w.context(), patience)
		defer cancel()
		return w.first.locker.Close(ctx)
	})
}

func shuttingDown() want {
	p := problem(http.StatusServiceUnavailable, "shutting-down", "1")
	return want{p.words + ", `Connection: close`", func(w *world, a *answer) error {
		if !a.closes {
			return errors.New("want Connection: close")
		}
		return p.check(w, a)
	}}
}

func storeSection() section {
	full := then("the store is full", func(w *world) error { w.front.full.Store(true); return nil })
	mute := then("the store's answers get lost", func(w *world) error { w.front.silent.Store(true); return nil })
	open := idempotent(latch.WithFailOpen())
	return section{"When the store fails", []row{
		{name: "down before", faulty: true, shortBudget: true, steps: []step{down(), submission().gets(unavailable()), up(), submission().comes(created(1))}, effects: 1, practice: "idemlease: 503; celeris, bright-room/idem: runs, unprotected; fiber: 500", why: "preventing duplicates is the purpose"},
		{name: "down before, a repeat", faulty: true, shortBudget: true, steps: []step{submission().gets(created(1)), down(), submission().gets(unavailable()), up(), submission().comes(replay())}, effects: 1, practice: "celeris: runs again"},
		{name: "down before, another process", faulty: true, shortBudget: true, steps: []step{down(), submission().gets(unavailable()), submission(elsewhere()).gets(created(1)), up(), submission().comes(replay())}, effects: 1, practice: "usual"},
		{name: "down before, `WithFailOpen`", guard: open, faulty: true, shortBudget: true, steps: []step{down(), submission().gets(created(1)), submission().gets(created(2))}, effects: 2, practice: "celeris: by default"},
		{name: "down before, `WithFailOpen`, a duplicate in the same process, `WithWait(0)`", guard: open, locker: atOnce, faulty: true, shortBudget: true, steps: []step{down(), submission().begins(), submission().gets(inProgress()), finish(created(1))}, effects: 1, practice: "celeris: runs", why: "this process knows"},
		{name: "full", faulty: true, shortBudget: true, steps: []step{full, submission().gets(unavailable()), up(), submission().comes(created(1))}, effects: 1, practice: "go-idempotency: refused; an LRU: evicts", why: "an evicted request runs again"},
		{name: "full, a repeat", faulty: true, shortBudget: true, steps: []step{submission().gets(created(1)), full, submission(elsewhere()).gets(replay())}, effects: 1, practice: "go-idempotency: replayed"},
		{name: "down after the handler ran", locker: atOnce, faulty: true, shortBudget: true, steps: []step{
			submission().begins(), down(), finish(created(1)), submission(elsewhere()).gets(inProgress()), up(), submission(elsewhere()).comes(replay()),
		}, effects: 1, practice: "fiber: error, result lost; idemlease: released, runs again; go-idempotency: 503", why: "the effect is there"},
		{name: "down after the handler failed", faulty: true, shortBudget: true, handler: failing(500), steps: []step{
			submission().begins(), down(), finish(fresh(500)), up(), submission(elsewhere()).comes(created(2)),
		}, effects: 2, practice: "blocked until the lease ends"},
		{name: "the answer to the settle is lost", faulty: true, shortBudget: true, steps: []step{
			submission().begins(), mute, finish(created(1)), submission(elsewhere()).gets(replay()), up(), submission().comes(replay()),
		}, effects: 1, practice: "go-redis#2985: refused by itself"},
		{name: "shut down", steps: []step{shut(), submission().gets(shuttingDown()), submission(elsewhere()).gets(created(1))}, effects: 1, practice: "503, or a connection that is reset"},
		{name: "shut down, `WithFailOpen`", guard: open, steps: []step{shut(), submission().gets(shuttingDown())}, practice: "usual", why: "another process can protect it"},
		{name: "shut down after an answer", steps: []step{submission().gets(created(1)), shut(), submission().gets(shuttingDown()), submission(elsewhere()).gets(replay())}, effects: 1, practice: "usual"},
	}}
}

func refusalSection() section {
	own := func(opts ...latch.IdempotentOption) guard {
		return idempotent(append(opts, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			if errors.Is(p.Err, keyfunc.ErrMissing) {
				p.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "busy")
		}))...)
	}
	fails := func(err error) guard {
		return keyedBy(func(*http.Request) (string, error) { return "", err })
	}
	cors := outside(func(w http.ResponseWriter, _ int64) { w.Header().Set("Access-Control-Allow-Origin", "*") })
	return section{"What a refusal looks like", []row{
		{name: "its form", steps: []step{submission(key()).gets(missing(), has("Content-Type", "application/problem+json"), has("Cache-Control", "no-store"), lacks("Retry-After"))}, practice: "draft 2.7: problem details; velmie: plain text"},
		{name: "the time until the next attempt", locker: atOnce, steps: []step{submission().begins(), submission().gets(inProgress(), has("Retry-After", "1")), finish(created(1))}, effects: 1, practice: "idemlease: the rest of the lease", why: "a lease that is renewed says nothing about the end of the work"},
		{name: "headers of outer middleware", guard: cors, steps: []step{submission(key()).gets(missing(), has("Access-Control-Allow-Origin", "*"))}, practice: "a browser could not read it"},
		{name: "an application's own", guard: own(), locker: atOnce, steps: []step{submission().begins(), submission().gets(status(418), text("busy"), has("Retry-After", "1"), has("Cache-Control", "no-store")), finish(created(1))}, effects: 1, practice: "idemlease: Errors; IETF#42: 422 collides"},
		{name: "an application's own, which falls back", guard: own(), steps: []step{submission(key()).gets(missing())}, practice: "idemlease: Errors"},
		{name: "a status of the key function's own", guard: fails(&keyfunc.Error{Status: 403, Err: errSecret}), steps: []step{submission().gets(plain(403), has("Content-Type", "application/problem+json"))}, practice: "httprate: 428"},
		{name: "a secret in an error", guard: fails(&keyfunc.Error{Status: 400, Err: errSecret}), steps: []step{submission().gets(invalid(), without(errSecret.Error()))}, practice: "fiber: err.Error()", why: "it leaks"},
	}}
}

func dedupeSection() section {
	dedupe := func(window time.Duration, opts ...latch.IdempotentOption) guard {
		return func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, window, opts...) }
	}
	nokey := func(mods ...mod) request { return submission(append([]mod{as("", key())}, mods...)...) }
	hour, brief := dedupe(time.Hour), dedupe(300*time.Millisecond)
	each := func(name string, m mod, practice string) row {
		return row{name: name, guard: hour, steps: []step{nokey().gets(created(1)), nokey(m).gets(created(2))}, effects: 2, practice: practice}
	}
	return section{"`Dedupe`: without a key", []row{
		{name: "the same again", guard: hour, steps: []step{nokey().gets(created(1)), nokey().gets(replay())}, effects: 1, practice: "RuoYi: an error; Struts: the first answer", why: "the first answer is what the user wants"},
		{name: "the same, in another process", guard: hour, steps: []step{nokey().gets(created(1)), nokey(elsewhere()).gets(replay())}, effects: 1, practice: "RuoYi-Vue: get, then set"},
		{name: "while the first runs, `WithWait(0)`", guard: hour, locker: atOnce, steps: []step{nokey().begins(), nokey().gets(inProgress()), finish(created(1))}, effects: 1, practice: "pig-mesh: an error"},
		{name: "while the first runs", guard: hour, steps: []step{nokey().begins(), nokey().wait(1), finish(created(1)), waited(replay())}, effects: 1, practice: "Laravel block(): runs after it"},
		{name: "ten at once", guard: hour, steps: []step{nokey().crowd(10, status(201), text(`{"order":1}`))}, effects: 1, practice: "tienchin-video#1: fast clicks pass"},
		each("another body", body(`{"sku":"coffee"}`), "RuoYi: compared, too"),
		each("another user", user("43"), "RuoYi: by the token"),
		each("another path", target("/refunds"), "RuoYi: by the URI"),
		each("another query", target("/orders?dry=1"), "RuoYi: parameters are compared, too"),
		{name: "the query in another order", guard: hour, steps: []step{nokey(target("/orders?a=1&b=2")).gets(created(1)), nokey(target("/orders?b=2&a=1")).gets(replay())}, effects: 1, practice: "most: runs", why: "one submission"},
		{name: "another boundary", guard: hour, steps: []step{nokey(multi("one", "a", "x.png", "p")).gets(created(1)), nokey(multi("two", "a", "x.png", "p")).gets(replay())}, effects: 1, practice: "RuoYi-Vue-Plus: files left out"},
		{name: "without a body", guard: hour, steps: []step{nokey(noBody()).gets(created(1)), nokey(noBody()).gets(replay())}, effects: 1, practice: "IdempotentAPI#58"},
		{name: "two keys of a client", guard: hour, steps: []step{submission(key("a")).gets(created(1)), submission(key("b")).gets(replay())}, effects: 1, practice: "keys are not looked at"},
		{name: "the window is over", guard: brief, steps: []step{nokey().gets(created(1)), nokey().comes(created(2))}, effects: 2, practice: "RuoYi: 5 s"},
		{name: "the first failed", guard: hour, handler: failing(500), steps: []step{nokey().gets(fresh(500)), nokey().gets(created(2))}, effects: 2, practice: "RuoYi-Vue: refused all the same; Plus: runs"},
		{name: "the first was refused, `429`", guard: hour, handler: failing(429), steps: []step{nokey().gets(fresh(429)), nokey().gets(created(2))}, effects: 2, practice: "RuoYi-Vue-Plus: runs"},
		{name: "the first was wrong, `400`", guard: hour, handler: answering(400), steps: []step{nokey().gets(fresh(400)), nokey().gets(replay())}, effects: 1, practice: "RuoYi-Vue-Plus: runs", why: "the same request is wrong again"},
		{name: "chosen parts, equal", guard: dedupe(time.Hour, latch.WithFingerprint(keyfunc.JSON("/order"))), steps: []step{nokey(body(`{"order":7,"at":1}`)).gets(created(1)), nokey(body(`{"order":7,"at":2}`)).gets(replay())}, effects: 1, practice: "SpEL in pig-mesh, Lock4j"},
		{name: "chosen parts, different", guard: dedupe(time.Hour, latch.WithFingerprint(keyfunc.JSON("/order"))), steps: []step{nokey(body(`{"order":7}`)).gets(created(1)), nokey(body(`{"order":8}`)).gets(created(2))}, effects: 2, practice: "SpEL in pig-mesh, Lock4j"},
		{name: "`GET`", guard: hour, steps: []step{nokey(method("GET"), noBody()).gets(created(1)), nokey(method("GET"), noBody()).gets(created(2))}, effects: 2, practice: "RuoYi: by annotation"},
		{name: "a webhook by its delivery ID", guard: dedupe(time.Hour, latch.WithFingerprint(keyfunc.Header("X-Delivery"))), steps: []step{nokey(header("X-Delivery", "1"), body(`{"try":1}`)).gets(created(1)), nokey(header("X-Delivery", "1"), body(`{"try":2}`)).gets(replay())}, effects: 1, practice: "GitHub, Shopify: at least once"},
	}}
}
