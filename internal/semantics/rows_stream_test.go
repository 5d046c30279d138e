package semantics_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

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
	return section{"Streams and taken connections", append([]row{
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
	}, outerTrailerRows()...)}
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
	return section{"Limits", append([]row{
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
		{name: "an answer over it, `500`", guard: limits, handler: firstly(func(c *run) {
			c.WriteHeader(500)
			_, _ = io.WriteString(c, strings.Repeat("x", 101))
		}), steps: []step{submission().gets(fresh(500), bytesLong(101)), submission().gets(created(2))}, effects: 2, practice: "most: the same"},
		{name: "an answer at the default limit", handler: writes(mib), steps: []step{submission().gets(ok(), bytesLong(mib)), submission().gets(replay())}, effects: 1, practice: "idemlease: 1 MiB"},
		{name: "an answer over the default limit", handler: writes(mib + 1), steps: []step{submission().gets(ok(), bytesLong(mib+1)), submission().gets(notReplayable())}, effects: 1, practice: "granit#1151: 413"},
		{name: "headers over the limit", guard: limits, handler: func(c *run) {
			c.Header().Set("X-Long", strings.Repeat("x", 200))
			_, _ = io.WriteString(c, "ok")
		}, steps: []step{submission().gets(ok(), text("ok")), submission().gets(notReplayable())}, effects: 1, practice: "most: no limit"},
	}, keyLimitRows()...)}
}

// further is a service to which a handler sends requests on.
type further func(r *http.Request) (*http.Response, error)

func (f further) RoundTrip(r *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GetConn("orders.internal:80")
	}
	return f(r)
}

// connected is a further that has a connection.
func connected(f further) further {
	return func(r *http.Request) (*http.Response, error) {
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
			trace.GotConn(httptrace.GotConnInfo{})
		}
		return f(r)
	}
}

// inChunks is an answer without a length.
func inChunks(status int, body io.Reader, header ...string) further {
	return connected(func(r *http.Request) (*http.Response, error) {
		h := make(http.Header)
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, TransferEncoding: []string{"chunked"},
			Header: h, Body: io.NopCloser(body), Request: r,
		}, nil
	})
}

// passingOn is a gateway to first, and in later runs to a service that works.
func passingOn(first func() further, opts ...latch.UpstreamOption) func(c *run) {
	return func(c *run) {
		meets := first()
		if c.n > 1 {
			meets = inChunks(201, strings.NewReader(fmt.Sprintf(`{"order":%d}`, c.n)), "Content-Type", "application/json", "Location", fmt.Sprintf("/orders/%d", c.n))
		}
		(&httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "orders.internal"}) },
			Transport: latch.Upstream(meets, opts...),
			ErrorLog:  log.New(io.Discard, "", 0),
		}).ServeHTTP(c.ResponseWriter, c.req)
	}
}

var errLost = errors.New("connection reset by peer")

func upstreamSection() section {
	gateway := func(name string, meets func() further, practice, why string, effects int64, first int, again want) row {
		return row{
			name: name, handler: passingOn(meets), effects: effects, practice: practice, why: why,
			steps: []step{submission().gets(fresh(first)), submission().gets(again)},
		}
	}
	unknown := problem(409, "outcome-unknown", "")
	answers := func(status int, header ...string) func() further {
		return func() further { return inChunks(status, strings.NewReader("text"), header...) }
	}
	lost := func() further { return connected(func(*http.Request) (*http.Response, error) { return nil, errLost }) }
	refused := func() further { return func(*http.Request) (*http.Response, error) { return nil, errLost } }
	cut := func() further { return inChunks(201, io.MultiReader(strings.NewReader("te"), broken{})) }
	const plain = "a plain gateway: runs again"
	const own = "no other library has this"
	spoken := func(name string, meets func() further, why string, effects int64, first int, again want) row {
		r := gateway(name, meets, own, why, effects, first, again)
		r.handler = passingOn(meets, latch.WithUpstreamHeaders())
		for i := range r.steps {
			r.steps[i].wants = append(r.steps[i].wants, lacks("Latch-Commit"))
		}
		return r
	}
	trailing := func() further {
		return func(r *http.Request) (*http.Response, error) {
			answer, err := answers(500)()(r)
			answer.Trailer = http.Header{"Latch-Commit": {"yes"}}
			return answer, err
		}
	}
	return section{"Behind a gateway", []row{
		gateway("an answer in chunks", answers(201), "a plain gateway: 409 `result-not-replayable`", "within the limit it is read as a whole", 1, 201, replay()),
		gateway("a stream", answers(200, "Content-Type", "text/event-stream"), "the same", "", 1, 200, replay()),
		gateway("no connection", refused, "the same", "", 2, 502, created(2)),
		gateway("the answer is lost, or late", lost, plain, "the order may be there", 1, 502, unknown),
		gateway("the answer is cut off", cut, plain, "the order may be there", 1, 502, unknown),
		gateway("`500`", answers(500), "the same", "the service says that it has failed", 2, 500, created(2)),
		gateway("`503` with `Retry-After`", answers(503, "Retry-After", "2"), "the same", "the service says when to come again", 2, 503, created(2)),
		gateway("`503`", answers(503), plain, "Envoy says so when it has lost an answer", 1, 503, unknown),
		gateway("`499`", answers(499), plain, "the service may have stopped in the middle", 1, 499, unknown),
		gateway("`502`", answers(502), plain, "another gateway has lost the answer", 1, 502, unknown),
		gateway("`504`", answers(504, "Retry-After", "2"), plain, "another gateway has lost the answer", 1, 504, unknown),
		gateway("`524`", answers(524), plain, "Cloudflare has lost the answer", 1, 524, unknown),
		spoken("`500` with `Latch-Commit: yes`", answers(500, "Latch-Commit", "yes"), "the effect has happened, and something behind it has failed", 1, 500, replay()),
		spoken("`502` with `Latch-Commit: yes`", answers(502, "Latch-Commit", "yes"), "the effect has happened", 1, 502, replay()),
		spoken("`502` with `Latch-Commit: no`", answers(502, "Latch-Commit", "no"), "the upstream has rolled back its work", 2, 502, created(2)),
		spoken("`201` with `Latch-Commit: no`", answers(201, "Latch-Commit", "no"), "an answer that is kept is kept", 1, 201, replay()),
		spoken("`502` with another `Latch-Commit`", answers(502, "Latch-Commit", "perhaps"), "it counts as none", 1, 502, unknown),
		spoken("`500` with `Latch-Commit: yes` as a trailer", trailing, "only the header counts", 2, 500, created(2)),
		gateway("`500` with `Latch-Commit: yes`, without `WithUpstreamHeaders`", answers(500, "Latch-Commit", "yes"), own, "it is not read", 2, 500, created(2)),
		underLock("under `Lock`, the answer is lost", lost, 2, "every lock", "", created(2)),
		underLock("under `Lock` with `WithUnknownHold`, the answer is lost", lost, 1, "none has one", "the service may still be at work", heldForAnHour(), latch.WithUnknownHold(time.Hour)),
		underLock("under `Lock` with `WithUnknownHold`, `504`", answers(504), 1, "none has one", "the service may still be at work", heldForAnHour(), latch.WithUnknownHold(time.Hour)),
		underLock("under `Lock` with `WithUnknownHold`, no connection", refused, 2, "every lock", "", created(2), latch.WithUnknownHold(time.Hour)),
		{name: "a handler whose call is lost, and that answers `202`", handler: func(c *run) {
			call, err := http.NewRequestWithContext(c.req.Context(), http.MethodPost, "http://orders.internal/", nil)
			if err != nil {
				panic(err)
			}
			if res, err := latch.Upstream(lost()).RoundTrip(call); err == nil {
				_ = res.Body.Close()
			}
			c.WriteHeader(202)
		}, effects: 1, practice: "the same", why: "the handler has decided", steps: []step{submission().gets(fresh(202)), submission().gets(replay())}},
		{name: "a handler that says `latch.Unknown`, and fails", handler: func(c *run) {
			if err := latch.Unknown(c.req.Context()); err != nil {
				panic(err)
			}
			c.WriteHeader(502)
		}, effects: 1, practice: own, why: "its own client has lost the answer", steps: []step{submission().gets(fresh(502)), submission().gets(unknown)}},
	}}
}

// underLock is a gateway behind a Lock. Its first answer is of the status 502, or of the service.
func underLock(name string, meets func() further, effects int64, practice, why string, again want, opts ...latch.LockOption) row {
	first := want{"the gateway's `502`, or the service's `504`", func(_ *world, a *answer) error {
		if a.status != http.StatusBadGateway && a.status != http.StatusGatewayTimeout {
			return errors.New("want 502 or 504")
		}
		return nil
	}}
	return row{
		name: name, guard: locked(opts...), handler: passingOn(meets), effects: effects, practice: practice, why: why,
		steps: []step{submission().gets(first), submission(elsewhere()).gets(again)},
	}
}

// broken is a body that breaks off.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
