package semantics_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
)

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
	failed := func(answer func(c *run)) func(c *run) {
		return func(c *run) {
			if c.n == 1 {
				answer(c)
				return
			}
			order(c)
		}
	}
	long := func(c *run) { _, _ = io.WriteString(c, strings.Repeat("x", 2<<20)) }
	aborted := func(c *run) { _ = faketx.Fail(c.req.Context()); order(c) }
	silent := make([]faketx.Fault, 10)
	for i := range silent {
		silent[i] = faketx.LoseRequest
	}
	all := []row{
		{name: "an answer that is kept", steps: []step{submission().gets(created(1), rows(1)), submission().gets(replay(), rows(1))}, effects: 1, practice: "idemlease: four calls in the right order"},
		{name: "`500`", handler: failing(500), steps: []step{submission().gets(fresh(500), rows(0)), next}, effects: 2, practice: "by hand"},
		{name: "a panic", handler: failed(func(*run) { panic(http.ErrAbortHandler) }), steps: []step{submission().gets(none()), next}, effects: 2, practice: "by hand"},
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
		{name: "a statement has failed, and the handler answers `201`", handler: failed(aborted), steps: []step{
			submission().gets(rolledBack(500, "")...), next,
		}, effects: 2, practice: "201, and nothing is there", why: "what is answered has to be true"},
		{name: "no connection", steps: []step{
			meets("the database has no connection", faketx.Begin, faketx.Refuse(nil)), submission().gets(unavailable(), rows(0)), submission().gets(created(1), rows(1)),
		}, effects: 1, practice: "500"},
		{name: "flushed", early: func(c *run) { inserting(c); flushing(c) }, handler: more, steps: []step{
			submission().gets(ok(), text("data: 1\n\ndata: 2\n\n"), rows(1)), submission().gets(text("data: 1\n\ndata: 2\n\n"), rows(1)),
		}, effects: 1, practice: "sent before the commit", why: "a Flush is held back"},
		{name: "an answer over 1 MiB", handler: failed(long), steps: []step{submission().gets(rolledBack(500, "")...), next}, effects: 2, practice: "sent before the commit", why: "it is logged, with the cure"},
		{name: "`lock.Commit`, then `500`", handler: failed(func(c *run) { committed(c); c.WriteHeader(500) }), steps: []step{
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
