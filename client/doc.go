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
// All attempts at one request have one key, one method and one body. Against a server
// that runs each key once, as middleware.Idempotent does, a request has its effect at
// most once, however often the connection breaks, and its caller gets the answer of the
// run that had the effect, if it comes within the limits below.
//
// A request gets a key unless its method is GET, HEAD, OPTIONS or TRACE, which the guards
// of httplatch let pass, too. CONNECT, and a request whose scheme is neither http nor
// https, are sent as they are. The key is, in this order: the Idempotency-Key header of
// the request, the key of [WithKey] or [Step], or a new random one ([WithNewKey]).
//
// # In a guarded handler
//
// A handler behind middleware.Idempotent or Dedupe may run again: it failed, or its process
// died, and its client repeats. A new key for each run would have a second effect. So Transport
// makes none for a request with the context of such a handler: the request has its own header,
// a key of [WithKey], or one derived for its name by [Step], or else it fails and nothing is
// sent. Keys are not derived from the order of the calls: a run that makes one call more or
// fewer, or two at the same time, would exchange them. WithKey with "" sends a request whose
// effect needs no key.
//
// # What is sent again
//
// An attempt is repeated if the connection could not be made, or broke before there was an
// answer: the whole answer if it is a problem, else its header. It is also repeated if the
// answer is one of these, after a random pause and its Retry-After, if it has one:
//
//   - 408, 425, 429, 502, 503 or 504;
//   - a problem of httplatch for which its page says so: in-progress, first-failed,
//     rolled-back with 503, unconfirmed, unavailable, shutting-down, key-failed,
//     body-unreadable (https://github.com/httplatch/httplatch/blob/main/docs/problems.md);
//   - the same as in-progress by other contracts, a 409 with JSON: idempotency_in_flight of
//     the Agentic Commerce Protocol, idempotency_key_in_use of Stripe;
//   - an answer of 400 or above with "Stripe-Should-Retry: true".
//
// It is not repeated, and the answer or the error is returned unchanged
//
//   - if the answer is a final problem, whatever its status: held and cooling-down
//     (another submission is running, or was successful a moment ago),
//     outcome-unknown, key-reused, result-not-replayable, and all problems that a
//     repeat would meet again;
//   - with "Stripe-Should-Retry: false", or any other status;
//   - if it has no key, unless its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE;
//   - if its body cannot be read again: [http.Request.GetBody] is nil, and its
//     ContentLength, or the part of it that was read, is over [WithBodyLimit];
//   - if the certificate of the server is not valid, the server speaks no TLS, or a
//     header cannot be sent;
//   - once the context has ended, or if the pause would outlast its deadline: a
//     server that sends "Retry-After: 1000000000" is not waited for;
//   - once a limit is reached: [WithAttempts], [WithMaxWait], [WithBudget].
//
// The request has one context for all attempts, and [http.Client.Timeout] is a deadline for
// them together. The wait for a server that accepts a request and never answers ends only
// there: set ResponseHeaderTimeout on the base transport, too.
//
// # What it did
//
// [http.Response.Request] is the request with its Idempotency-Key; [Attempts] returns how often it
// was sent; [WithHook] reports each attempt. An error is the base transport's, without the key,
// or the cause of a context that has ended during a pause: a caller who needs the key
// afterwards sets it with WithKey.
//
// # Bodies
//
// A request body without GetBody is kept while it is sent, up to WithBodyLimit. Nothing is read
// ahead.
//
// Answers are returned as soon as their headers have come, and are not kept. Only a problem
// (application/problem+json, 400 or above) and a 409 with JSON are read before, up to 64 KiB
// and for 5 seconds at most, because the kind of the problem decides.
//
// If an answer below 400 to a request with a key breaks off while its body is read, Read sends
// the request again, within the same limits, and goes on from the same place, if the new
// answer is the same as far as that can be seen: of the same class (2xx, say), with the same
// Location, ETag, Content-Type, Content-Encoding and, if both have it, Content-Length, and with
// the same bytes so far. If not, Read returns the error of the connection. An answer that
// announces trailers is not resumed.
//
// Nor is an answer of 400 or above: its caller has seen that the request failed, a server need
// not keep such an answer, and the request might run again and succeed unseen.
//
// # A trap of net/http
//
// [http.Transport] repeats some requests by itself when a connection that it has used before
// breaks. A request with an Idempotency-Key or X-Idempotency-Key header is one of these if it has
// no body or a GetBody, whether the server knows that header or not: one POST, two effects,
// and no trace of the first. Transport prevents that: each attempt at a request with a key is
// decided, limited and reported here. A request with a body reaches the base without GetBody.
// A request without a body reaches it with the header's name in lower case, as HTTP/2 sends it,
// which HTTP/1.1 servers treat alike; a base that looks for the key finds it in
// Header["idempotency-key"]. net/http may still send over another connection a request of which
// it has written nothing, and GET, HEAD, OPTIONS and TRACE.
//
// # Redirects
//
// [http.Client] follows 307 and 308 with the same method and body. To the same origin
// (scheme, host and port), the request has the same key. To any other origin, and for
// all that follows, it has none, even if the caller has set the header: a key is known
// to the server that it was made for only.
package client
