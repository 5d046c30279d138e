package middleware

import (
	"net/http"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// Lock runs one request at a time per name and key. The handler finds its lease with
// [lock.FromContext], and its request's context ends when the lease is lost. Duplicates
// are answered with 409 and never reach the handler.
//
// The name ("user", "order") keeps kinds of keys apart and labels metrics. The locked key
// is lock.Key(name, value), so this route and a worker that calls [lock.Locker.Do] with
// that key exclude each other. Settings such as the lease belong to the Locker: pass
// locker.With(...) for one route.
//
// A request for which key returns [keyfunc.ErrSkip] runs unguarded; "" is
// [keyfunc.ErrMissing], and every other error refuses the request.
//
// A client that can name a key holds it for as long as its request takes. So authorise requests
// outside, or an outsider can lock out the owner. If the handler reads a body, a client that
// sends the body slowly holds the key until the ReadTimeout of the server: [WithBodyFirst]
// prevents this.
//
// The handler's context ends when the client goes away, even in the middle of the work. This
// happens at a second click on a form: the browser gives up the first request. The second
// request is refused while the first still runs. If it arrives later, it runs.
// With a Locker that has [lock.WithDetached], the work of the first request goes on, as behind
// [Idempotent] and [Dedupe].
//
// The key is free when the handler returns, even if a goroutine of the handler goes on. So
// [http.TimeoutHandler], which returns before the handler that it runs, goes outside of Lock. Lock logs
// an error, once, if it wraps a TimeoutHandler, or if a handler behind it asks its context for a value,
// or for its lease, after Lock has returned.
//
// Options are listed at [LockOption].
//
// It panics on a nil Locker, a nil key function, a nil option, and a name that is empty
// or begins with "once:".
func Lock(l *lock.Locker, name string, key keyfunc.Func, opts ...LockOption) func(http.Handler) http.Handler {
	mustNot(key == nil, "Lock: nil key function")
	g := newLockGuard("Lock", l, name, opts)
	g.key = key
	return g.around(g.serveLocked)
}

// LockAll is [Lock] for several keys of one request: the handler runs only while all of them are
// held. The locked keys are lock.Key(name, value) for each value of keys. They are claimed as by
// [lock.Locker.AcquireAll], so requests that share a key exclude each other and never wait for
// each other in a circle. The handler finds its set with [lock.SetFromContext].
//
//	perItem := latch.LockAll(locker, "item", keyfunc.Each("/items/*/sku"))
//
// A request is refused if one of its keys is held or cools down, with the answers of Lock.
// After an answer below 400, [WithCooldown] keeps all keys taken. If an outer guard of the
// request holds one of the keys, that key is not claimed again.
//
// Everything else is as for Lock. LockAll panics where Lock does, and with [WithPermits].
func LockAll(l *lock.Locker, name string, keys keyfunc.Set, opts ...LockOption) func(http.Handler) http.Handler {
	mustNot(keys == nil, "LockAll: nil key function")
	g := newLockGuard("LockAll", l, name, opts)
	mustNot(g.permits > 0, "LockAll: WithPermits is for Lock")
	g.keys = keys
	return g.around(g.serveLocked)
}
