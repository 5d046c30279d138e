// Package client sends requests that must take effect once. [Transport] gives each of them an
// Idempotency-Key, and sends it again, with the same key, if a connection breaks or the server
// asks for it:
//
//	c := &http.Client{Transport: client.Transport(nil), Timeout: 30 * time.Second}
//	resp, err := c.Post(url, "application/json", body)
//
// It depends on the standard library only.
//
// # What it guarantees
//
// All attempts at one request have one key, one method and one body. If the server runs each
// key once, as middleware.Idempotent does, a request has its effect at most once, however often
// the connection breaks. The caller gets the answer of the run that had the effect, if it comes
// within the limits below.
//
// A request gets a key unless its method is safe: GET, HEAD, OPTIONS, TRACE, QUERY, PROPFIND, REPORT
// or SEARCH, which the guards of httplatch let pass, too. CONNECT, and a request whose scheme is neither http nor
// https, are sent unchanged. The key is the first of these: the Idempotency-Key header of
// the request, the key of [WithKey] or [Step], or a new random one ([WithNewKey]).
//
// # In a guarded handler
//
// A handler behind middleware.Idempotent or Dedupe may run again: it failed, or its process
// died, and its client repeats the request. With a new key for each run, a call of the handler
// could have a second effect. So Transport makes no key for a request with the context of such a
// handler. The request must have its own header, a key of [WithKey], or a key that [Step] derives
// from a name. Otherwise it fails and nothing is sent. Keys are not derived from the order of the
// calls: a run that makes one call more or fewer, or two at the same time, would exchange them.
// For a call that needs no key, use WithKey with "".
//
// # What is sent again
//
// An attempt is repeated if the connection could not be made, or broke before the header of the
// answer was read, or in the body of a problem without Latch-Problem. It is also repeated if the
// answer is one of these, after a random pause and the Retry-After of the answer, if it has one:
//
//   - 408, 425, 429, 502, 503 or 504;
//   - a problem of httplatch, by its header Latch-Problem, or the type in its body, whose row in
//     https://github.com/httplatch/httplatch/blob/main/docs/problems.md says yes;
//   - the equivalents of in-progress at servers of others, a 409 with JSON: idempotency_in_flight
//     of the Agentic Commerce Protocol, idempotency_key_in_use of Stripe;
//   - an answer of 400 or above with "Stripe-Should-Retry: true".
//
// It is not repeated, and the answer or the error is returned unchanged
//
//   - if the answer is a final problem, whatever its status: held and cooling-down
//     (another submission is running, or was successful a moment ago),
//     outcome-unknown, key-reused, result-not-replayable, and all problems that a
//     repeat would meet again;
//   - with "Stripe-Should-Retry: false", or any other status;
//   - if it has no key, unless its method is safe, PUT or DELETE;
//   - if its body cannot be read again: [http.Request.GetBody] is nil, and its
//     ContentLength, or the part of it that was read, is over [WithBodyLimit];
//   - if the certificate of the server is not valid, the server speaks no TLS, or a
//     header cannot be sent;
//   - if the context has ended, or if the pause would end after the context's deadline, as
//     after "Retry-After: 1000000000";
//   - if a limit is reached: [WithAttempts], [WithMaxWait], [WithBudget].
//
// The request has one context for all attempts, and [http.Client.Timeout] is a deadline for all
// of them together. If a server accepts a request and never answers, only this deadline ends the
// wait: set ResponseHeaderTimeout on the base transport, too.
//
// # What it did
//
// [http.Response.Request] is the request with its Idempotency-Key; [Attempts] returns how often it
// was sent; [WithHook] reports each attempt. An error is the error of the base transport, or the
// cause of a context that has ended during a pause. It does not contain the key: a caller who
// needs the key afterwards sets it with WithKey.
//
// # Bodies
//
// A request body without GetBody is kept while it is sent, up to WithBodyLimit. It is not read
// ahead.
//
// Answers are returned as soon as their headers have come, and are not kept. Only a problem
// (application/problem+json, 400 or above) and a 409 with JSON are read before they are returned,
// if they have no Latch-Problem, up to 64 KiB and for 5 seconds at most: their kind decides
// whether to repeat the request.
//
// If an answer below 400 to a request with a key breaks off while its body is read, Read sends
// the request again, within the same limits, and continues from the same place. It does so only
// if the new answer appears to be the same: it has the same class (2xx, say), the same Location,
// ETag, Content-Type, Content-Encoding and, if both have it, Content-Length, and the same bytes
// so far. If not, Read returns the error of the connection. An answer that announces trailers is
// not resumed.
//
// An answer of 400 or above is not resumed either: the caller has seen that the request failed,
// and a server need not keep such an answer. So the request might run again and succeed unseen.
//
// # A trap of net/http
//
// [http.Transport] repeats some requests by itself when a connection that it has used before
// breaks. A request with an Idempotency-Key or X-Idempotency-Key header is one of these if it has
// no body or a GetBody, even if the server does not know the header: one POST, two effects, and
// no trace of the first. Transport prevents this: it alone decides about, limits and reports each
// attempt at a request with a key. It gives base a request with a body without GetBody, and a
// request without a body with the header's name in lower case. HTTP/2 always sends names in lower
// case, and HTTP/1.1 servers ignore the case. A base that looks for the key finds it in
// Header["idempotency-key"]. If net/http has written nothing of a request, it may still send the
// request over another connection. Over HTTP/2, it also repeats a request without a body that the server
// has not processed, and with Go 1.26 one whose stream ends with PROTOCOL_ERROR. It may also repeat GET,
// HEAD, OPTIONS and TRACE.
//
// # Redirects
//
// [http.Client] follows 307 and 308 with the same method and body. To the same origin
// (scheme, host and port), the request has the same key. To any other origin, and in all later
// redirects, it has no key, even if the caller has set the header: only the server for which a
// key was made must learn it.
package client
