package semantics_test

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5/middleware"

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

// failing answers with a status at its first run, and creates an order later.
func failing(status int) func(c *run) {
	return func(c *run) {
		if c.n == 1 {
			answering(status)(c)
			return
		}
		order(c)
	}
}

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
	return section{"Which answers are kept", []row{
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
	}}
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
		return row{name: name, effects: 2, practice: practice, handler: func(c *run) {
			if c.n == 1 {
				c.Header().Set("X-Half", "1")
				c.WriteHeader(201)
				_, _ = io.WriteString(c, "half an answer")
				abort()
			}
			order(c)
		}, steps: []step{submission().gets(none()), submission().gets(created(2), lacks("X-Half")), submission().gets(replay())}}
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
		{name: "its failure is written past the guard", guard: past, handler: func(c *run) {
			if c.n == 1 {
				c.WriteHeader(500)
				return
			}
			order(c)
		}, steps: []step{submission().gets(fresh(500)), submission().gets(created(2))}, effects: 2, practice: "most: an empty 200, replayed", why: "a failure is no success"},
		{name: "`DoNotKeep`", handler: passing(func(*run) {}), steps: []step{submission().gets(created(1)), submission().gets(created(2)), submission().gets(replay())}, effects: 2, practice: "most: by status only"},
		{name: "`DoNotKeep`, after `Commit`", handler: passing(committed), steps: []step{submission().gets(created(1)), submission().gets(notReplayable())}, effects: 1, practice: "no other known"},
		aborts("panic", boom, "celeris#921: key blocked for 30 s; Stripe: 500, kept"),
		aborts("`http.ErrAbortHandler`", func() { panic(http.ErrAbortHandler) }, "net/http: ends the connection"),
		aborts("`runtime.Goexit`", goexit, "x/sync singleflight: its own outcome"),
		after("panic", boom, "actor-ts#984: claim deleted, effect twice"),
		after("`runtime.Goexit`", goexit, "actor-ts#984"),
		{name: "panic, recovered outside", guard: recovering, handler: func(c *run) {
			if c.n == 1 {
				c.Header().Set("Content-Length", "5000")
				panic("boom")
			}
			order(c)
		}, steps: []step{submission().gets(fresh(500), lacks("X-Half"), bytesLong(0)), submission().gets(created(2))}, effects: 2, practice: "most: not kept"},
		{name: "less than announced", handler: func(c *run) {
			c.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(c, "ten bytes.")
		}, steps: []step{submission().gets(ok(), cutOff()), submission().gets(notReplayable())}, effects: 1, practice: "no other known", why: "a replay would look whole"},
		{name: "more than announced", handler: func(c *run) {
			c.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(c, "12345")
			_, _ = io.WriteString(c, "678")
		}, steps: []step{submission().gets(ok(), text("12345")), submission().gets(replay())}, effects: 1, practice: "net/http: the rest is refused"},
		{name: "an invalid status", handler: func(c *run) {
			if c.n == 1 {
				c.WriteHeader(99)
			}
			order(c)
		}, steps: []step{submission().gets(none()), submission().gets(created(2))}, effects: 2, practice: "net/http: panic"},
		{name: "the first attempt", handler: func(c *run) { _, _ = fmt.Fprintf(c, "attempt %d", lock.Attempt(c.req.Context())) }, steps: []step{submission().gets(ok(), text("attempt 1")), submission().gets(replay())}, effects: 1, practice: "go-idempotency: attempt number in the context"},
	}}
}
