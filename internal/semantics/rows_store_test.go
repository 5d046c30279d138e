package semantics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
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
	return section{"What a refusal looks like", append([]row{
		{name: "its form", steps: []step{submission(key()).gets(missing(), has("Content-Type", "application/problem+json"), has("Cache-Control", "no-store"), lacks("Retry-After"))}, practice: "draft 2.7: problem details; velmie: plain text"},
		{name: "the time until the next attempt", locker: atOnce, steps: []step{submission().begins(), submission().gets(inProgress(), has("Retry-After", "1")), finish(created(1))}, effects: 1, practice: "idemlease: the rest of the lease", why: "a lease that is renewed says nothing about the end of the work"},
		{name: "headers of outer middleware", guard: cors, steps: []step{submission(key()).gets(missing(), has("Access-Control-Allow-Origin", "*"))}, practice: "a browser could not read it"},
		{name: "an application's own", guard: own(), locker: atOnce, steps: []step{submission().begins(), submission().gets(status(418), text("busy"), has("Retry-After", "1"), has("Cache-Control", "no-store")), finish(created(1))}, effects: 1, practice: "idemlease: Errors; IETF#42: 422 collides"},
		{name: "an application's own, which falls back", guard: own(), steps: []step{submission(key()).gets(missing())}, practice: "idemlease: Errors"},
		{name: "a status of the key function's own", guard: fails(&keyfunc.Error{Status: 403, Err: errSecret}), steps: []step{submission().gets(plain(403), has("Content-Type", "application/problem+json"))}, practice: "httprate: 428"},
		{name: "a secret in an error", guard: fails(&keyfunc.Error{Status: 400, Err: errSecret}), steps: []step{submission().gets(invalid(), without(errSecret.Error()))}, practice: "fiber: err.Error()", why: "it leaks"},
	}, failedKeyRows()...)}
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

// inserting inserts an order, as the handlers of this section do first.
func inserting(c *run) { _ = faketx.Insert(c.req.Context(), fmt.Sprint(c.n)) } // without a guard, there is no transaction

// meets has the next step of that kind meet faults.
func meets(sent string, which faketx.Step, faults ...faketx.Fault) step {
	return then(sent, func(w *world) error {
		if db, ok := w.base.(*faketx.Store); ok {
			db.Next(which, faults...)
		}
		return nil
	})
}

// rows wants n orders in the database.
func rows(n int) want {
	words := fmt.Sprintf("%d order is there", n)
	if n == 0 {
		words = "no order is there"
	}
	return want{words, func(w *world, _ *answer) error {
		db, ok := w.base.(*faketx.Store)
		if !ok || len(db.Effects()) != n {
			return fmt.Errorf("want: %s", words)
		}
		return nil
	}}
}

func transactionSection() section {
	rolledBack := func(status int, again string) []want { return []want{problem(status, "rolled-back", again), rows(0)} }
	next := submission().gets(created(2), rows(1))
	long := func(c *run) { _, _ = io.WriteString(c, strings.Repeat("x", 2<<20)) }
	aborted := func(c *run) { _ = faketx.Fail(c.req.Context()); order(c) }
	silent := make([]faketx.Fault, 10)
	for i := range silent {
		silent[i] = faketx.LoseRequest
	}
	all := []row{
		{name: "an answer that is kept", steps: []step{submission().gets(created(1), rows(1)), submission().gets(replay(), rows(1))}, effects: 1, practice: "idemlease: four calls in the right order"},
		{name: "`500`", handler: failing(500), steps: []step{submission().gets(fresh(500), rows(0)), next}, effects: 2, practice: "by hand"},
		{name: "a panic", handler: firstly(func(*run) { panic(http.ErrAbortHandler) }), steps: []step{submission().gets(none()), next}, effects: 2, practice: "by hand"},
		{name: "the commit is applied, and its answer lost", steps: []step{
			meets("the next answer to a commit gets lost", faketx.Commit, faketx.LoseReply), submission().gets(created(1), rows(1)), submission(elsewhere()).gets(replay()),
		}, effects: 1, practice: "idemlease: 500", why: "the database is asked"},
		{name: "the commit is lost", steps: []step{
			meets("the next commit gets lost", faketx.Commit, faketx.LoseRequest), submission().gets(rolledBack(503, "1")...), next,
		}, effects: 2, practice: "idemlease: 500", why: "the database is asked"},
		{name: "the commit's answer is lost, and the database is silent", steps: []step{
			meets("the next answer to a commit gets lost", faketx.Commit, faketx.LoseReply), meets("the next questions about it get lost", faketx.Outcome, silent...),
			submission().gets(problem(503, "unconfirmed", "1")), submission().comes(status(201), has("Idempotent-Replayed", "true"), rows(1)),
		}, effects: 1, practice: "500", why: "the repeat has the true answer"},
		{name: "a serialization failure at the commit", steps: []step{
			meets("the next commit meets another transaction", faketx.Commit, faketx.Conflict), submission().gets(rolledBack(503, "1")...), next,
		}, effects: 2, practice: "500", why: "the next try may succeed"},
		{name: "a statement has failed, and the handler answers `201`", handler: firstly(aborted), steps: []step{
			submission().gets(rolledBack(500, "")...), next,
		}, effects: 2, practice: "201, and nothing is there", why: "what is answered has to be true"},
		{name: "no connection", steps: []step{
			meets("the database has no connection", faketx.Begin, faketx.Refuse(nil)), submission().gets(unavailable(), rows(0)), submission().gets(created(1), rows(1)),
		}, effects: 1, practice: "500"},
		{name: "flushed", early: func(c *run) { inserting(c); flushing(c) }, handler: more, steps: []step{
			submission().gets(ok(), text("data: 1\n\ndata: 2\n\n"), rows(1)), submission().gets(text("data: 1\n\ndata: 2\n\n"), rows(1)),
		}, effects: 1, practice: "sent before the commit", why: "a Flush is held back"},
		{name: "an answer over 1 MiB", handler: firstly(long), steps: []step{submission().gets(rolledBack(500, "")...), next}, effects: 2, practice: "sent before the commit", why: "it is logged, with the cure"},
		{name: "`lock.Commit`, then `500`", handler: firstly(func(c *run) { committed(c); c.WriteHeader(500) }), steps: []step{
			submission().gets(fresh(500), rows(0)), submission().gets(notReplayable(), rows(0)),
		}, effects: 1, practice: "by hand", why: "a card was charged"},
		{name: "another body, while it runs", steps: []step{submission().begins(), submission(body("coffee")).gets(reused()), finish(created(1), rows(1))}, effects: 1, practice: "draft 2.7: 422"},
	}
	for i := range all {
		r := &all[i]
		r.database, r.locker = true, []lock.Option{lock.WithTransaction()}
		if r.early == nil {
			r.early = inserting
		}
	}
	return section{"In a transaction", all}
}
