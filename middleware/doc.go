// Package middleware guards HTTP handlers against duplicate submissions: the double click, the retry of a mobile
// client, the replay of a gateway. Import it as latch:
//
//	import latch "github.com/httplatch/httplatch/middleware"
//
//	onePerUser := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"))
//	mux.Handle("POST /orders", onePerUser(http.HandlerFunc(createOrder)))
//
// docs/semantics.md lists every case and its answer.
//
// # What Lock guarantees
//
// [Lock] runs one request at a time per name and key, in all processes that share a store. A duplicate is answered with
// 409 and does not reach the handler. The key is free again before the end of a buffered answer is sent, so a client that
// has read its answer can submit again at once. The key is also freed if the handler panics or ends its goroutine, and if
// the client has gone away.
//
// [LockAll] locks several keys of one request, all or none, and [WithPermits] lets n requests run at the same time
// instead of one.
//
// # What Idempotent and Dedupe guarantee
//
// [Idempotent] runs a request once per scope, method, path and key, and answers its repeats with the first answer: the
// same status, headers and body. [Dedupe] does the same for equal requests without a key, for some time.
//
//	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//	mux.Handle("POST /orders", once(onePerUser(http.HandlerFunc(createOrder))))
//
// While a record is kept, the handler's effect happens at most once, with two exceptions: the handler failed (500 or
// above, a panic, or an answer that [WithFinal] does not keep) without having called [lock.Commit], or
// [lock.WithRerunAbandoned] was chosen. If the process dies in the middle, it is unknown whether there was an effect, and
// repeats are answered with 409 (outcome-unknown).
//
// The answer is held back until its record is settled. It is sent even if the store does not confirm the settle: the
// record is then completed in the background, and the key stays taken until then. An answer without a Content-Length
// that is flushed is a stream: it is recorded while it is sent, and repeats get all of it when it has ended. Some answers
// cannot be recorded, such as one that is longer than [WithBodyLimits] allows, or a hijacked connection. Even so, no
// request runs twice after a part of an answer was sent: if the answer would have been kept, repeats get 409.
//
// With [lock.WithTransaction] the handler's effect and the record of its answer are committed together, and the answer
// is sent after the commit. A failure, a crash, or a lost lease has no effect, and the next try runs. A Flush does
// nothing, a Hijack is not supported, and an answer longer than WithBodyLimits allows is replaced by 500 and rolled back.
//
// Repeats that arrive while the first request runs wait for its answer, up to 10 s, or for the time of [lock.WithWait].
// Then they get 409, or another status ([WithInProgressStatus]). At most 64 requests wait for one key in a process.
// Time-outs outside the guard, such as the WriteTimeout of [http.Server], have to be longer than the wait.
//
// If the first request fails and leaves no record, the repeats that have waited for it in the same process get the
// failed answer, too, with "Idempotent-Replayed: not-kept", unless its status depends on the caller, such as 401.
//
// The whole request body is read before the key is claimed, and the handler finds it as the client sent it. A form that
// outer middleware has parsed counts as the content of the request. If outer middleware has read a part of the body and
// not put it back, the request is refused, because it cannot be compared with its repeats.
//
// A repeat gets the headers that the handler set or changed, and the headers that describe the body, whichever code has
// set them: ETag, Last-Modified, and all of Content-* except Content-Encoding. Other headers that outer middleware sets
// belong to the current request. If the handler has added values to such a header, only those values are replayed.
// [WithKeepHeaders] names exceptions. A page of another origin than the first gets no Access-Control headers of the first
// answer, unless they are for all origins. Set-Cookie is never replayed, but with each final answer, a form of package form
// gets its own cookie.
//
// # Effects in another service
//
// A gateway, and a handler that calls another service, may get no answer although that service has done the work.
// [Upstream] is the transport for such calls, and [Unknown] is for calls by other means: as soon as a request may have
// been sent, a failure does not free the key. A service that takes an idempotency key is called without them, with a key
// of [DeriveKey], which is the same in each run.
//
// # Limits
//
// A lock is a lease, and so is the claim of a request that runs. If it is lost meanwhile, the context of the request ends
// with a cause that matches [lock.ErrLost], and the handler must stop. A handler that does not check its context, or a
// process that is paused, can outlive its lease. If even then no effect may happen, the resource has to check the fence
// ([lock.Lease.Fence]) of each write.
//
// If an answer is larger than the buffer of net/http and has a Content-Length, its client can read it one round trip
// before the key is free.
//
// # What goes through
//
// Requests of a safe method pass untouched, so a whole group of routes can be wrapped: GET, HEAD, OPTIONS, TRACE, QUERY
// (RFC 10008), and PROPFIND, REPORT and SEARCH of WebDAV.
//
// # When it refuses
//
// A refusal is application/problem+json with a stable type, fixed texts, Cache-Control: no-store and the kind in
// Latch-Problem, or a [Page] for a client that prefers text/html, as a browser does that sends a form. [ProblemKind]
// lists all kinds, and docs/problems.md has the status of each, and what it asks of the client. See [Problem] for other
// answers.
//
// # Order of middleware
//
//   - Authentication goes outside, because the key usually names the user, and so that repeats are authenticated, too.
//   - Then comes Idempotent or Dedupe, then Lock, then the handler. With Lock outside, the lock and its cool-down would
//     refuse repeats.
//   - Middleware that compresses goes outside of Idempotent, or all repeats get the coding of the first. Middleware that
//     reads the body goes inside, unless it parses forms or puts the body back.
//   - http.TimeoutHandler goes outside of all guards. There it answers in time, and the work goes on under its lock until
//     its answer is recorded. Inside, its 503 frees the key while the handler may still be running.
//   - Each guard goes in one place: on the route if the key is a path value, which only the router knows. One that is
//     mounted around the router and once more on the route does nothing on the route.
//
// A guard that notices a mistake in this order logs an error, once.
//
// # Operators
//
// Package middleware/console is a page that shows the holder of each key, and can free the key. Package
// middleware/policy makes guards from a file, by name.
package middleware
