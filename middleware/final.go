package middleware

import (
	"net/http"
	"slices"

	"github.com/httplatch/httplatch/middleware/internal/refusal"
)

// final reports whether the answer is to be kept. A refusal by a guard never
// is: neither that of a guard further in, which has left its mark on the run (a
// refusal that the handler did not hand on, and answered in its place, is none),
// nor that of a guard of another process, which came over a connection. But
// what happened after lock.Commit must not happen again. In a transaction, the Locker sees
// to that, and an answer that is not final rolls back what was written.
func (a *answer) final() bool {
	r := a.ran
	switch {
	case int(r.refused.Load()) == a.status:
		return false
	case r.once.Committed() && !r.once.InTransaction():
		return true
	case r.passing.Load():
		return false
	case r.guard.final != nil:
		return r.guard.final(a.status) && !a.refusal()
	}
	return finalByDefault(a.status) && !a.retryLater() && !a.refusal()
}

// finalByDefault keeps what the same request would be answered again, and not
// what depends on the moment, or on the caller.
func finalByDefault(status int) bool {
	return status < 500 && !slices.Contains([]int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
		http.StatusTooEarly, http.StatusTooManyRequests,
	}, status)
}

// retryLater reports whether the answer is a failure that says when to send the
// request again. Below 400, Retry-After says when to look for the result of
// what has begun: a 202 that is not kept would begin it twice.
func (a *answer) retryLater() bool {
	if a.status < 400 {
		return false
	}
	after := a.room.values("Retry-After")
	return len(after) > 0 && after[0] != ""
}

// refusal reports whether the answer is a [Problem] of a guard, which a handler
// that is a proxy has received from the guarded service behind it.
func (a *answer) refusal() bool {
	return a.status >= 400 && refusal.Is(a.status, a.room.values("Content-Type"), a.room.values("Content-Encoding"), a.body())
}

// refusalLimit is how long the answer can become and still be a refusal.
func (a *answer) refusalLimit() int64 {
	return refusal.Limit(a.status, a.room.values("Content-Type"), a.room.values("Content-Encoding"), a.body())
}

// mayBeRefusal reports whether the answer, as far as it is written, could become one.
func (a *answer) mayBeRefusal() bool {
	limit := a.refusalLimit()
	return limit > 0 && int64(a.size()) <= limit
}
