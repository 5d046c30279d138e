package middleware

import (
	"fmt"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/identity"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// Idempotent runs a request once per scope, method, URL path and key, and answers every
// repeat with the first answer, marked with "Idempotent-Replayed: true":
//
//	latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
// scope identifies the caller: no caller gets the answer of another one. Take it from your
// authentication, which must be mounted outside. If all callers share one scope, use
// [keyfunc.Global]. In the embedded store, a scope can use only a part of the memory
// ([memstore.WithScopeShare]). key decides which requests of the caller are the same. If one of
// the two functions returns [keyfunc.ErrSkip], as [keyfunc.Optional] does, the request runs
// unguarded. The result "" is [keyfunc.ErrMissing]. Every other error refuses the request.
//
// The path is the path of the request that the guard gets, in one spelling: "/a%3Bb" is "/a;b",
// and "/a/b/" and "/a//b" are "/a/b", because routers serve them alike, but "/a%2Fb" is not "/a/b".
// If [http.StripPrefix] outside the guard makes the paths of two routes equal, use different Lockers
// or scopes for them, and so for two routes whose paths differ in slashes only.
//
// Three things do not distinguish requests: the host, so put the tenant into the scope if a
// service has several; headers, unless [WithFingerprint] reads them, except the
// X-HTTP-Method-Override of a POST, which counts as its method; and the rights of the
// caller. A repeat gets the stored answer even if a check inside the guard would now refuse the
// request: authorise outside, or with [WithReplay].
//
// The handler's context outlives the client's connection: a browser gives up the first
// request of a double click, and its work must be completed. The context ends when the
// lease is lost. See [lock.Attempt] and [lock.Commit] for the handler's view. Three
// settings belong to the Locker: how long answers are kept, how long a repeat waits for the first
// answer (10 s unless [lock.WithWait] is set, then 409), and the outcome of a crash. Pass
// locker.With(...) for one route.
//
// [WithFinal] lists the answers that free the key. Repeats that wait for such an answer get it, as the
// package's documentation says.
//
// For operators, the record has the name of its guard ([WithName]), method, path, the
// time at which the request began, and its scope, or the text of [WithLabel]. Package console finds
// records by these texts.
//
// Options are listed at [IdempotentOption].
//
// It panics on a nil Locker, a nil function and a nil option, if the Locker's store keeps no
// receipts, as a [quorum.New], and under a contract if the Locker keeps them for less than 24
// hours.
func Idempotent(l *lock.Locker, scope, key keyfunc.Func, opts ...IdempotentOption) func(http.Handler) http.Handler {
	mustNot(key == nil, "Idempotent: nil key function")
	g := newOnceGuard("Idempotent", identity.Idempotent, l, scope, opts)
	g.key = key
	keep, least := g.locker.Keep(), 24*time.Hour
	mustNot(g.contract && keep < least, fmt.Sprintf("Idempotent: its contract demands that answers are kept for %v or longer, and they are kept for %v", least, keep))
	return g.around(g.serveOnce)
}

// Dedupe runs a request once within window, and answers the same request again with the
// first answer. It needs no key from the client: requests of one scope are the same if
// method, URL path, query and body are the same ([WithFingerprint]). The window begins
// when the first request ends.
//
// In all other respects Dedupe is like [Idempotent]: a duplicate that arrives while the first
// request still runs waits for its answer. But a user who means to submit the same twice within the
// window gets one submission: keep the window as short as a double click.
//
// It is not for a PUT or PATCH that sets a value: if a client, within the window,
// sets 1, then 2, then 1 again, the third request is a repeat of the first, and 2 stays.
//
// It panics on a nil Locker, a nil function, a window that is not positive, a nil option,
// and a store that keeps no receipts.
func Dedupe(l *lock.Locker, scope keyfunc.Func, window time.Duration, opts ...IdempotentOption) func(http.Handler) http.Handler {
	must(setting.ValidatePositive(window), "Dedupe: a window of %v", window)
	g := newOnceGuard("Dedupe", "dedupe", l, scope, opts)
	g.locker = g.locker.With(lock.WithKeep(window))
	return g.around(g.serveOnce)
}
