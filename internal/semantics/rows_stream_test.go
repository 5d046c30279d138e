package semantics_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
	latch "github.com/httplatch/httplatch/middleware"
)

// flushing answers in two pieces, the first of which leaves before the second.
func flushing(c *run) {
	c.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(c, "data: 1\n\n")
	if err := http.NewResponseController(c.ResponseWriter).Flush(); err != nil {
		panic(err)
	}
}

func more(c *run) { _, _ = io.WriteString(c, "data: 2\n\n") }

// hijacking takes over the connection, and answers by hand.
func hijacking(answer string) func(c *run) {
	return func(c *run) {
		conn, buf, err := http.NewResponseController(c.ResponseWriter).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = buf.WriteString(answer)
		_ = buf.Flush()
		_ = conn.Close()
	}
}

func streamSection() section {
	tombstone := func(name string, early, handler func(c *run), practice, why string, wants ...want) row {
		return row{
			name: name, early: early, handler: handler, effects: 1, practice: practice, why: why,
			steps: []step{submission().gets(wants...), submission().gets(notReplayable())},
		}
	}
	events := "data: 1\n\ndata: 2\n\n"
	return section{"Streams and taken connections", []row{
		{name: "flushed", early: flushing, handler: more, steps: []step{submission().gets(ok(), text(events)), submission().gets(replay())}, effects: 1, practice: "godoxy#206: buffered; idemlease: runs again", why: "it is recorded while it is sent"},
		{name: "flushed, while it runs", early: flushing, handler: more, steps: []step{submission().begins(), submission().wait(1), finish(ok(), text(events)), waited(replay())}, effects: 1, practice: "409 in progress"},
		{name: "flushed, while it runs, `WithWait(0)`", locker: atOnce, early: flushing, handler: more, steps: []step{submission().begins(), submission().gets(inProgress()), submission(elsewhere()).gets(inProgress()), finish(ok(), text(events)), submission(elsewhere()).gets(replay())}, effects: 1, practice: "409 in progress"},
		{name: "flushed, and the client hangs up", early: flushing, handler: more, steps: []step{submission().leaves(), goesOn(), submission().gets(status(200), text(events), has("Idempotent-Replayed", "true"))}, effects: 1, practice: "most: cancelled; LibreChat#14344 resumes"},
		{name: "flushed, beyond the limit, and the client hangs up", guard: idempotent(latch.WithBodyLimits(100, 10)), early: flushing, handler: func(c *run) { more(c); c.gone() }, steps: []step{submission().leaves(), goesOn(), submission().gets(notReplayable())}, effects: 1, practice: "most: cancelled"},
		{name: "flushed, and breaks off", early: func(c *run) { c.Header().Set("Location", "/orders/1"); flushing(c) }, handler: func(*run) { panic(http.ErrAbortHandler) }, steps: []step{submission().gets(cutOff()), submission().gets(notReplayable(), has("Location", "/orders/1"))}, effects: 1, practice: "granit#1151: 413", why: "it shows where to look"},
		{name: "flushed, `500`", early: func(c *run) {
			if c.n == 1 {
				c.WriteHeader(500)
				flushing(c)
			}
		}, handler: func(c *run) {
			if c.n > 1 {
				order(c)
			}
		}, steps: []step{submission().gets(fresh(500)), submission().gets(created(2))}, effects: 2, practice: "most: the same"},
		{name: "events that were not flushed", handler: func(c *run) {
			c.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(c, events)
		}, steps: []step{submission().gets(ok(), text(events)), submission().gets(replay())}, effects: 1, practice: "Treblle#50: recognised by the type"},
		tombstone("a protocol upgrade", nil, hijacking("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello"), "mediamtx#6126: Hijacker hidden", "", status(101), text("hello")),
		tombstone("a connection taken over", nil, hijacking("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nby hand"), "chi#544: Hijacker hidden", "", status(200), text("by hand")),
		{name: "a connection taken over, while it runs", early: hijacking("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nby hand"), handler: func(*run) {}, steps: []step{submission().begins(), submission().gets(notReplayable()), finish(status(200))}, effects: 1, practice: "most: 409"},
		{name: "trailers", handler: func(c *run) {
			c.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(c, "ok")
			c.Header().Set("X-Sum", "7")
		}, steps: []step{submission().gets(ok(), text("ok"), trailer("X-Sum", "7")), submission().gets(notReplayable())}, effects: 1, practice: "most: lost in the replay", why: "the replay would not be equal"},
		{name: "trailers that were not announced", handler: func(c *run) {
			_, _ = io.WriteString(c, strings.Repeat("x", 5000)) // net/http sends no trailers behind what it can send with a length
			c.Header().Set(http.TrailerPrefix+"X-Sum", "7")
		}, steps: []step{submission().gets(ok(), bytesLong(5000), trailer("X-Sum", "7")), submission().gets(notReplayable())}, effects: 1, practice: "most: lost in the replay", why: "the replay would not be equal"},
	}}
}

func limitSection() section {
	limits := idempotent(latch.WithBodyLimits(100, 100))
	tooLarge := problem(http.StatusRequestEntityTooLarge, "body-too-large", "")
	writes := func(n int) func(c *run) {
		return func(c *run) {
			c.Header().Set("Location", fmt.Sprintf("/orders/%d", c.n))
			_, _ = io.WriteString(c, strings.Repeat("x", n))
		}
	}
	const mib = 1 << 20
	return section{"Limits", []row{
		{name: "a request at the limit", guard: limits, steps: again([]mod{big(100)}, []mod{big(100)}), effects: 1, practice: "idemlease, celeris: 1 MiB"},
		{name: "a request over it", guard: limits, steps: []step{submission(big(101)).gets(tooLarge), submission().gets(created(1))}, effects: 1, practice: "idemlease, celeris, Hono: 413"},
		{name: "a request over it, in chunks", guard: limits, steps: []step{submission(big(101), chunked()).gets(tooLarge), submission().gets(created(1))}, effects: 1, practice: "Hono: the real bytes count"},
		{name: "a repeat over it", guard: limits, steps: []step{submission().gets(created(1)), submission(big(101)).gets(tooLarge), submission().gets(replay())}, effects: 1, practice: "usual"},
		{name: "a request over the default", steps: []step{submission(big(mib + 1)).gets(tooLarge)}, practice: "idemlease, celeris: 413"},
		{name: "a request over it, without a key, `Optional`", guard: keyedBy(keyfunc.Optional(keyfunc.IdempotencyKey), latch.WithBodyLimits(100, 100)), steps: []step{submission(key(), big(101)).gets(created(1))}, effects: 1, practice: "not guarded, not limited"},
		{name: "an answer at the limit", guard: limits, handler: writes(100), steps: []step{submission().gets(ok(), bytesLong(100)), submission().gets(replay())}, effects: 1, practice: "granit: 256 KiB; go-idempotency: 64 KiB"},
		{name: "an answer over it", guard: limits, handler: writes(101), steps: []step{submission().gets(ok(), bytesLong(101)), submission().gets(notReplayable(), has("Location", "/orders/1"))}, effects: 1, practice: "fiber#4018, celeris, idemlease: runs again; velmie: empty replay; go-idempotency: 500 to the first", why: "never a second run"},
		{name: "an answer over it, in pieces", guard: limits, handler: func(c *run) {
			for range 101 {
				_, _ = c.Write([]byte("x"))
			}
		}, steps: []step{submission().gets(ok(), bytesLong(101)), submission().gets(notReplayable())}, effects: 1, practice: "fiber#4018"},
		{name: "an answer over it, `500`", guard: limits, handler: func(c *run) {
			if c.n == 1 {
				c.WriteHeader(500)
				_, _ = io.WriteString(c, strings.Repeat("x", 101))
				return
			}
			order(c)
		}, steps: []step{submission().gets(fresh(500), bytesLong(101)), submission().gets(created(2))}, effects: 2, practice: "most: the same"},
		{name: "an answer at the default limit", handler: writes(mib), steps: []step{submission().gets(ok(), bytesLong(mib)), submission().gets(replay())}, effects: 1, practice: "idemlease: 1 MiB"},
		{name: "an answer over the default limit", handler: writes(mib + 1), steps: []step{submission().gets(ok(), bytesLong(mib+1)), submission().gets(notReplayable())}, effects: 1, practice: "granit#1151: 413"},
		{name: "headers over the limit", guard: limits, handler: func(c *run) {
			c.Header().Set("X-Long", strings.Repeat("x", 200))
			_, _ = io.WriteString(c, "ok")
		}, steps: []step{submission().gets(ok(), text("ok")), submission().gets(notReplayable())}, effects: 1, practice: "most: no limit"},
	}}
}
