package semantics_test

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// answering is a handler that answers with a status, and says which run it is.
func answering(status int) func(c *run) {
	return func(c *run) {
		c.WriteHeader(status)
		_, _ = fmt.Fprintf(c, "run %d", c.n)
	}
}

// firstly does something else at its first run, and creates an order later.
func firstly(something func(c *run)) func(c *run) {
	return func(c *run) {
		if c.n > 1 {
			order(c)
			return
		}
		something(c)
	}
}

// failing answers with a status at its first run, and creates an order later.
func failing(status int) func(c *run) { return firstly(answering(status)) }

// panicking panics at its first run.
var panicking = firstly(func(*run) { panic("boom") })

// committed says that the effect has happened.
func committed(c *run) {
	if err := lock.Commit(c.req.Context()); err != nil {
		panic(err)
	}
}

func statusSection() section {
	keeps := func(status int, practice, why string) row {
		return row{
			name: fmt.Sprintf("`%d`", status), handler: answering(status), effects: 1, practice: practice, why: why,
			steps: []step{submission().gets(fresh(status)), submission().gets(replay())},
		}
	}
	frees := func(status int, practice, why string) row {
		return row{
			name: fmt.Sprintf("`%d`", status), handler: failing(status), effects: 2, practice: practice, why: why,
			steps: []step{submission().gets(fresh(status)), submission().gets(created(2)), submission().gets(replay())},
		}
	}
	successes := latch.WithFinal(func(status int) bool { return status < 300 })
	return section{"Which answers are kept", append([]row{
		keeps(400, "Stripe: kept once execution began; hono-idempotency, Checkout.com: 2xx alone", "the same request fails again; see `WithFinal`"),
		frees(401, "Stripe: before the idempotency layer", ""),
		keeps(402, "Stripe: kept", ""),
		frees(403, "idemlease: kept", "rights change"),
		keeps(404, "idemlease, Stripe: kept", ""),
		keeps(405, "kept by most", "the method is compared"),
		frees(406, "kept by most", "`Accept` is not compared"),
		frees(407, "kept by most", "the credentials for a proxy are not compared"),
		frees(408, "idemlease: kept", "it reports that the request was not done"),
		keeps(409, "idemlease: kept; PPRO: not", ""),
		keeps(410, "kept by most", ""),
		frees(411, "kept by most", "`Content-Length` is not compared"),
		frees(412, "kept by most", "`If-Match` is not compared"),
		keeps(413, "kept by most", "the body is compared"), keeps(414, "kept by most", "the URL is compared"),
		frees(415, "kept by most", "`Content-Type` is not compared"),
		frees(416, "kept by most", "`Range` is not compared"),
		frees(417, "kept by most", "`Expect` is not compared"),
		frees(419, "kept by most", "Laravel: the CSRF token of a header is not compared"),
		frees(421, "kept by most", "the host is not compared"),
		keeps(422, "kept by most", ""),
		frees(423, "idempo (Ruby): kept", "`If`, with a token of WebDAV, is not compared"),
		keeps(424, "kept by most", ""),
		frees(426, "kept by most", "`Upgrade` is not compared"),
		frees(428, "kept by most", "`If-Match` is not compared"),
		frees(431, "kept by most", "the headers are not compared"),
		keeps(451, "kept by most", ""),
		frees(499, "kept by most", "the client has hung up, and its repeat has not"),
		frees(425, "idempo (Ruby): not kept", ""),
		frees(429, "Stripe, idemlease: not kept", ""),
		frees(500, "Stripe v1, celeris: kept; idemlease, Checkout.com: not", "a failure is no answer; after an effect: `Commit`"),
		frees(501, "most: the same", ""),
		frees(502, "IETF#48: not replayed", ""), frees(503, "IETF#48: not replayed", ""),
		frees(504, "IETF#41: kept, as ambiguous", "after an effect: `Commit`"),
		{name: "twice `500`, then `201`", handler: func(c *run) {
			if c.n < 3 {
				c.WriteHeader(500)
				return
			}
			order(c)
		}, steps: []step{submission().gets(fresh(500)), submission().gets(fresh(500)), submission().gets(created(3)), submission().gets(replay())}, effects: 3, practice: "autumn#1838: 409 for a day"},
		{name: "`500` after `Commit`", early: committed, handler: answering(500), steps: []step{submission().gets(fresh(500)), submission().gets(replay())}, effects: 1, practice: "Stripe v1: every 500"},
		{name: "`401` after `Commit`", early: committed, handler: answering(401), steps: []step{submission().gets(fresh(401)), submission().gets(replay())}, effects: 1, practice: "no other known"},
		{name: "`429` after `Commit`", early: committed, handler: answering(429), steps: []step{submission().gets(fresh(429)), submission().gets(replay())}, effects: 1, practice: "no other known"},
		{name: "`400`, only successes are kept", guard: idempotent(successes), handler: failing(400), steps: []step{submission().gets(fresh(400)), submission().gets(created(2))}, effects: 2, practice: "Checkout.com, IdempotentAPI; Truxify#2869: a wrong one-time password was kept"},
		{name: "`303`, only successes are kept", guard: idempotent(successes), handler: failing(303), steps: []step{submission().gets(fresh(303)), submission().gets(created(2))}, effects: 2, practice: "Hono: 2xx alone"},
		{name: "`503`, kept on demand", guard: idempotent(latch.WithFinal(func(int) bool { return true })), handler: answering(503), steps: []step{submission().gets(fresh(503)), submission().gets(replay())}, effects: 1, practice: "Stripe v1"},
	}, againRows()...)}
}

func privateSection() section {
	h := func(c *run) http.Header { return c.Header() }
	first := func(name, value, practice string) row {
		return row{
			name: "`" + name + "`", effects: 1, practice: practice,
			handler: func(c *run) { h(c).Set(name, value); order(c) },
			steps:   []step{submission().gets(created(1), has(name, value)), submission().gets(replay(), lacks(name))},
		}
	}
	return section{"What is for the first client alone", []row{
		first("Set-Cookie", "session=s; HttpOnly", "granit#1151, IdempotentAPI, celeris: replayed"),
		first("Authorization", "Bearer s", "granit#1151: replayed"),
		first("WWW-Authenticate", "Basic", "granit#1151: replayed"),
		first("Authentication-Info", "nextnonce=n", "a secret of the connection"),
		first("Proxy-Authenticate", "Basic", "RFC 9110 11.7.1"),
		first("Keep-Alive", "timeout=5", "RFC 9110 7.6.1; idemlease, velmie: dropped"),
		{
			name: "what `Connection` names", effects: 1, practice: "RFC 9110 7.6.1; velmie alone",
			handler: func(c *run) { h(c).Set("Connection", "X-Hop"); h(c).Set("X-Hop", "1"); c.WriteHeader(200) },
			steps:   []step{submission().gets(ok(), has("X-Hop", "1")), submission().gets(status(200), lacks("X-Hop"), has("Idempotent-Replayed", "true"))},
		},
		{
			name: "a cookie of outer middleware", guard: outside(func(w http.ResponseWriter, n int64) {
				w.Header().Set("Set-Cookie", fmt.Sprintf("seen=%d", n))
			}), effects: 1, practice: "belongs to the repeat",
			steps: []step{submission().gets(created(1), has("Set-Cookie", "seen=1")), submission().gets(status(201), has("Set-Cookie", "seen=2"), has("Idempotent-Replayed", "true"))},
		},
	}}
}

func keptSection() section {
	briefly := []lock.Option{lock.WithKeep(300 * time.Millisecond)}
	return section{"How long", []row{
		{name: "the time is over", locker: briefly, steps: []step{submission().gets(created(1)), submission().comes(created(2))}, effects: 2, practice: "draft 2.3; Stripe: 24 h at least; OASIS: 412", why: "no record is left to compare with"},
		{name: "the time is over, another body", locker: briefly, steps: []step{submission().gets(created(1)), submission(body(`{"sku":"coffee"}`)).comes(created(2))}, effects: 2, practice: "Stripe: a new request"},
		{name: "an operator forgets it", faulty: true, steps: []step{submission().gets(created(1)), forgotten(), submission().gets(created(2))}, effects: 2, practice: "WendellAdriel/laravel-idempotency: idempotency:forget"},
		{name: "it was not kept", handler: failing(500), steps: []step{submission().gets(fresh(500)), submission().gets(created(2)), submission().gets(replay())}, effects: 2, practice: "most: the same"},
	}}
}

func endSection() section {
	aborts := func(name string, abort func(), practice string) row {
		return row{name: name, effects: 2, practice: practice, handler: firstly(func(c *run) {
			c.Header().Set("X-Half", "1")
			c.WriteHeader(201)
			_, _ = io.WriteString(c, "half an answer")
			abort()
		}), steps: []step{submission().gets(none()), submission().gets(created(2), lacks("X-Half")), submission().gets(replay())}}
	}
	after := func(name string, abort func(), practice string) row {
		return row{name: name + ", after `Commit`", early: committed, handler: func(*run) { abort() }, effects: 1, practice: practice, steps: []step{submission().gets(none()), submission().gets(notReplayable())}}
	}
	boom := func() { panic("boom") }
	recovering := guard(func(l *lock.Locker) func(http.Handler) http.Handler {
		once := idempotent()(l)
		return func(next http.Handler) http.Handler {
			guarded := once(next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if recover() != nil {
						w.WriteHeader(500)
					}
				}()
				guarded.ServeHTTP(w, r)
			})
		}
	})
	past := guard(func(l *lock.Locker) func(http.Handler) http.Handler {
		once := idempotent()(l)
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outer := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
				once(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { next.ServeHTTP(outer, r) })).ServeHTTP(outer, r)
			})
		}
	})
	passing := func(say func(c *run)) func(c *run) {
		return func(c *run) {
			if c.n == 1 {
				say(c)
				latch.DoNotKeep(c.req.Context())
			}
			order(c)
		}
	}
	return section{"How the handler ends", []row{
		{name: "nothing at all", handler: func(*run) {}, steps: []step{submission().gets(ok(), bytesLong(0)), submission().gets(replay())}, effects: 1, practice: "net/http: an empty 200"},
		{name: "its answer is written past the guard", guard: past, steps: []step{submission().gets(created(1)), submission().gets(notReplayable())}, effects: 1, practice: "most: an empty 200, replayed", why: "that is not the first answer"},
		{name: "its failure is written past the guard", guard: past, handler: failing(500), steps: []step{submission().gets(fresh(500)), submission().gets(created(2))}, effects: 2, practice: "most: an empty 200, replayed", why: "a failure is no success"},
		{name: "`DoNotKeep`", handler: passing(func(*run) {}), steps: []step{submission().gets(created(1)), submission().gets(created(2)), submission().gets(replay())}, effects: 2, practice: "most: by status only"},
		{name: "`DoNotKeep`, after `Commit`", handler: passing(committed), steps: []step{submission().gets(created(1)), submission().gets(notReplayable())}, effects: 1, practice: "no other known"},
		aborts("panic", boom, "celeris#921: key blocked for 30 s; Stripe: 500, kept"),
		aborts("`http.ErrAbortHandler`", func() { panic(http.ErrAbortHandler) }, "net/http: ends the connection"),
		aborts("`runtime.Goexit`", goexit, "x/sync singleflight: its own outcome"),
		after("panic", boom, "actor-ts#984: claim deleted, effect twice"),
		after("`runtime.Goexit`", goexit, "actor-ts#984"),
		{name: "panic, recovered outside", guard: recovering, handler: firstly(func(c *run) {
			c.Header().Set("Content-Length", "5000")
			panic("boom")
		}), steps: []step{submission().gets(fresh(500), lacks("X-Half"), bytesLong(0)), submission().gets(created(2))}, effects: 2, practice: "most: not kept"},
		{name: "less than announced", handler: func(c *run) {
			c.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(c, "ten bytes.")
		}, steps: []step{submission().gets(ok(), cutOff()), submission().gets(notReplayable())}, effects: 1, practice: "no other known", why: "a replay would look whole"},
		{name: "more than announced", handler: func(c *run) {
			c.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(c, "12345")
			_, _ = io.WriteString(c, "678")
		}, steps: []step{submission().gets(ok(), text("12345")), submission().gets(replay())}, effects: 1, practice: "net/http: the rest is refused"},
		{name: "an invalid status", handler: firstly(func(c *run) { c.WriteHeader(99) }), steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "net/http: panic"},
		{name: "the first attempt", handler: func(c *run) { _, _ = fmt.Fprintf(c, "attempt %d", lock.Attempt(c.req.Context())) }, steps: []step{submission().gets(ok(), text("attempt 1")), submission().gets(replay())}, effects: 1, practice: "go-idempotency: attempt number in the context"},
	}}
}

func runningSection() section {
	coffee := body(`{"sku":"coffee"}`)
	alone := func(name string, s step, practice string) row {
		return row{name: name, effects: 2, practice: practice, steps: []step{submission().begins(), s, finish(created(1))}}
	}
	return section{"While the first runs", append([]row{
		{name: "a duplicate", steps: []step{submission().begins(), submission().wait(1), finish(created(1)), waited(replay())}, effects: 1, practice: "fiber, velmie, idempotency4j: waits; draft 2.7, Stripe: 409; idempo (Ruby): 429; Adyen: 422", why: "most HTTP clients do not repeat a 409, and report a failure"},
		{name: "five duplicates", steps: []step{submission().begins(), submission().wait(5), finish(created(1)), waited(replay())}, effects: 1, practice: "fiber: without a limit"},
		{name: "a duplicate in another process", steps: []step{submission().begins(), submission(elsewhere()).asks(), finish(created(1)), waited(replay())}, effects: 1, practice: "velmie: polls; mastodon#37879: ran twice"},
		{name: "a duplicate, for too long", locker: []lock.Option{lock.WithWait(50 * time.Millisecond)}, steps: []step{submission().begins(), submission().gets(inProgress()), finish(created(1))}, effects: 1, practice: "idempotency4j: 503"},
		{name: "a duplicate, `WithWait(0)`", locker: atOnce, steps: []step{submission().begins(), submission().gets(inProgress()), finish(created(1)), submission().gets(replay())}, effects: 1, practice: "draft 2.7, Stripe: 409"},
		{name: "a duplicate, `WithWait(0)` and `WithInProgressStatus(503)`", guard: idempotent(latch.WithInProgressStatus(503)), locker: atOnce, steps: []step{submission().begins(), submission().gets(problem(503, "in-progress", "1")), finish(created(1)), submission().gets(replay())}, effects: 1, practice: "UCP: no status for it", why: "most HTTP clients repeat a 503"},
		{name: "a duplicate in another process, `WithWait(0)`", locker: atOnce, steps: []step{submission().begins(), submission(elsewhere()).gets(inProgress()), finish(created(1)), submission(elsewhere()).gets(replay())}, effects: 1, practice: "mastodon#37879: ran twice"},
		{name: "a duplicate, again and again, `WithWait(0)`", locker: atOnce, steps: []step{submission().begins(), submission().gets(inProgress()), submission().gets(inProgress()), submission().gets(inProgress()), finish(created(1))}, effects: 1, practice: "draft 2.6"},
		{name: "a duplicate of a request that fails, `WithWait(0)`", locker: atOnce, handler: failing(500), steps: []step{submission().begins(), submission().gets(inProgress()), finish(fresh(500)), submission().gets(created(2))}, effects: 2, practice: "most: the same"},
		alone("another key", submission(key("other")).gets(created(2)), "all: the same"),
		alone("another user", submission(user("43")).gets(created(2)), "all: the same"),
		alone("another path", submission(target("/refunds")).gets(created(2)), "all: the same"),
		{name: "no key, `Optional`", guard: keyedBy(keyfunc.Optional(keyfunc.IdempotencyKey)), steps: []step{submission().begins(), submission(key()).gets(created(2)), finish(created(1))}, effects: 2, practice: "Stripe: runs"},
		{name: "two at once, `WithWait(0)`", locker: atOnce, steps: []step{submission().together(2, created(1))}, effects: 1, practice: "grape-idempotency#10, hono-idempotency#91: ran twice"},
		{name: "twenty at once", steps: []step{submission().crowd(20, status(201), text(`{"order":1}`))}, effects: 1, practice: "idempot-js#181: 503; bright-room/idem: polls every 50 ms"},
		{name: "twenty at once, `WithWait(0)`", locker: atOnce, steps: []step{submission().together(20, created(1))}, effects: 1, practice: "idempot-js#181: 503"},
		{name: "another body", steps: []step{submission().begins(), submission(coffee).gets(reused()), finish(created(1))}, effects: 1, practice: "velmie: 422 at once"},
		{name: "the client hangs up", steps: []step{submission().leaves(), submission().wait(1), goesOn(), waited(status(201), text(`{"order":1}`), has("Idempotent-Replayed", "true"))}, effects: 1, practice: "fiber#4560, fullstackhero#1333: cancelled"},
		{name: "the handler looks at its context", handler: func(c *run) {
			if c.req.Context().Err() != nil {
				c.WriteHeader(500)
				return
			}
			order(c)
		}, steps: []step{submission().leaves(), goesOn(), submission().gets(status(201), text(`{"order":1}`), has("Idempotent-Replayed", "true"))}, effects: 1, practice: "net/http: cancelled", why: "a browser gives up the first request of a double click"},
		{name: "a body that does not end", steps: []step{submission().stalls(), submission().gets(created(1))}, effects: 1, practice: "most: claimed before the body is read", why: "an incomplete request holds no key"},
		{name: "a body that breaks off", steps: []step{submission(short(5)).gets(problem(400, "body-unreadable", "")), submission().gets(created(1))}, effects: 1, practice: "most: the handler sees a short body"},
		{name: "`Expect: 100-continue`", steps: []step{submission(header("Expect", "100-continue")).gets(created(1), hinted(http.StatusContinue)), submission(header("Expect", "100-continue")).gets(replay())}, effects: 1, practice: "RFC 9110 10.1.1"},
	}, crowdRows()...)}
}

// atOnce are the options of a Locker that refuses a duplicate at once.
var atOnce = []lock.Option{lock.WithWait(0)}

func crashSection() section {
	coffee := body(`{"sku":"coffee"}`)
	attempt := func(c *run) {
		c.Header().Set("X-Attempt", string(rune('0'+lock.Attempt(c.req.Context()))))
		order(c)
	}
	rerun := []lock.Option{lock.WithRerunAbandoned()}
	briefly := []lock.Option{lock.WithKeep(500 * time.Millisecond)}
	crashed := func(name, practice, why string, effects int64, steps ...step) row {
		return row{name: name, faulty: true, brief: true, practice: practice, why: why, effects: effects, steps: append([]step{submission().begins(), dies()}, steps...)}
	}
	cut := func(r row) row {
		r.steps[1].sent = "it is cut off from the store, and its lease ends"
		return r
	}
	with := func(r row, locker []lock.Option, early, handler func(c *run)) row {
		r.locker, r.early, r.handler = locker, early, handler
		return r
	}
	return section{"When the process dies", []row{
		{name: "its lease still runs, `WithWait(0)`", locker: atOnce, faulty: true, steps: []step{
			submission().begins(), vanishes(),
			submission(elsewhere()).gets(inProgress()),
		}, effects: 1, practice: "IdempotentAPI#37, express-idempotency#32: 409 for a day and more"},
		crashed("its lease is over", "powertools, idemlease: runs again; Echo Pro: uncertain", "it may have had its effect", 1, submission(elsewhere()).gets(unknown()), submission(elsewhere()).gets(unknown())),
		crashed("its lease is over, another body", "most: runs", "the key is still that of the other request", 1, submission(coffee, elsewhere()).gets(reused())),
		crashed("its lease is over, another key", "all: the same", "", 2, submission(key("other"), elsewhere()).gets(created(2))),
		with(crashed("run again on demand", "powertools, idemlease: by default", "", 2, submission(elsewhere()).gets(created(2), has("X-Attempt", "2")), submission(elsewhere()).gets(replay())), rerun, nil, attempt),
		with(crashed("run again on demand, another body", "most: runs", "the key is still that of the other request", 1, submission(coffee, elsewhere()).gets(reused())), rerun, nil, nil),
		with(crashed("after `Commit`", "Echo Pro: uncertain, without end", "", 1, submission(elsewhere()).gets(unknown())), nil, committed, nil),
		with(crashed("the time of its record is over", "Echo Pro: never", "a key cannot be refused for ever", 2, submission(elsewhere()).comes(created(2))), briefly, nil, nil),
		crashed("an operator removes it", "benhendayoussef#11, activejob-uniqueness#14: asked for", "", 2, forgotten(), submission(elsewhere()).gets(created(2))),
		cut(crashed("it was only cut off, and answers", "idemlease: its answer is dropped", "a late answer is an answer", 1, submission(elsewhere()).gets(unknown()), up(), finish(created(1)), submission(elsewhere()).comes(replay()))),
		with(cut(crashed("it was only cut off, and another one ran", "idempo (Ruby): both clients get their own", "all clients get the same", 2, submission(elsewhere()).gets(created(2)), up(), finish(replay()))), rerun, nil, nil),
		{name: "an operator removes it while it runs, and another one runs", faulty: true, steps: []step{submission().begins(), forgotten(), submission(elsewhere()).gets(created(2)), finish(replay())}, effects: 2, practice: "Truxify#4623: deletes the other one's lock"},
		{name: "an operator removes it while it runs", faulty: true, steps: []step{submission().begins(), forgotten(), finish(created(1)), submission(elsewhere()).gets(replay())}, effects: 1, practice: "most: its answer"},
		{name: "it dies after its answer", faulty: true, steps: []step{submission().gets(created(1)), vanishes(), submission(elsewhere()).gets(replay())}, effects: 1, practice: "draft 2.6"},
	}}
}
