package recorder

import (
	"net/http"
	"slices"

	"github.com/httplatch/httplatch/middleware/internal/refusal"
)

// final reports whether the answer is recorded. The refusal of a guard is never recorded. An inner
// guard marks its refusal (which does not count if the handler has replaced it by another
// answer). The refusal of a guard in another process is recognised by the answer itself. An
// answer after lock.Commit is always recorded: the work must not run again. In a transaction, an
// answer that is not final rolls the work back, and the Locker makes sure that the work does not
// run again after lock.Commit.
func (a *Answer) final() bool {
	switch {
	case int(a.refused.Load()) == a.status:
		return false
	case a.run.Committed() && !a.run.InTransaction():
		return true
	case a.doNotKeep.Load():
		return false
	case a.settings.Final != nil:
		return a.settings.Final(a.status) && !a.refusal()
	}
	return finalByDefault(a.status) && (a.status < 400 || !a.retryLater() && !a.refusal())
}

// finalByDefault reports whether the same request would get this status again, at any time and for
// any caller.
func finalByDefault(status int) bool {
	return status < 500 && !slices.Contains([]int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
		http.StatusTooEarly, http.StatusTooManyRequests,
	}, status)
}

// retryLater reports whether a failure has Retry-After. Below 400, Retry-After says when to look
// for the result of work that has begun: a 202 that is not recorded would begin it twice.
func (a *Answer) retryLater() bool {
	after := a.buffers.values("Retry-After")
	return len(after) > 0 && after[0] != ""
}

// refusal reports whether the answer is the refusal of a guard behind a proxy.
func (a *Answer) refusal() bool {
	return a.status >= 400 && refusal.Is(a.status, a.buffers.values("Content-Type"), a.buffers.values("Content-Encoding"), a.body())
}

// refusalLimit returns the largest size of the answer in bytes if it can be such a refusal, else 0.
func (a *Answer) refusalLimit() int64 {
	if a.status < 400 {
		return 0
	}
	return refusal.Limit(a.status, a.buffers.values("Content-Type"), a.buffers.values("Content-Encoding"), a.body())
}

// mayBeRefusal reports whether the answer can still become a refusal.
func (a *Answer) mayBeRefusal() bool {
	limit := a.refusalLimit()
	return limit > 0 && int64(a.size()) <= limit
}
