package semantics_test

import (
	"net/http"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

func runningSection() section {
	coffee := body(`{"sku":"coffee"}`)
	alone := func(name string, s step, practice string) row {
		return row{name: name, effects: 2, practice: practice, steps: []step{submission().begins(), s, finish(created(1))}}
	}
	return section{"While the first runs", []row{
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
	}}
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
		{name: "an operator removes it while it runs", faulty: true, steps: []step{submission().begins(), forgotten(), finish(unknown())}, effects: 1, practice: "most: its answer", why: "no entry prevents another run"},
		{name: "it dies after its answer", faulty: true, steps: []step{submission().gets(created(1)), vanishes(), submission(elsewhere()).gets(replay())}, effects: 1, practice: "draft 2.6"},
	}}
}
