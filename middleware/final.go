package middleware

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// final reports whether the answer is to be kept. A refusal by a guard never
// is: neither that of a guard further in, which has left its mark on the run (a
// refusal that the handler did not hand on, and answered in its place, is none),
// nor that of a guard of another process, which came over a connection. But
// what happened after lock.Commit must not happen again.
func (a *answer) final() bool {
	r := a.ran
	switch {
	case int(r.refused.Load()) == a.status:
		return false
	case r.settler.Committed():
		return true
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

// maxRefusal is above the longest refusal of a guard.
const maxRefusal = 4 << 10

// refusal reports whether the answer is a [Problem] of a guard, which a handler
// that is a proxy has received from the guarded service behind it.
func (a *answer) refusal() bool {
	if !a.mayBeRefusal() {
		return false
	}
	var members map[string]json.RawMessage // not a struct, which would take "Type" as well
	var name string
	return json.Unmarshal(a.body(), &members) == nil && json.Unmarshal(members["type"], &name) == nil &&
		strings.HasPrefix(name, kindBase)
}

// mayBeRefusal reports whether the answer could be one, whatever its body will
// be. One that is compressed is not recognised.
func (a *answer) mayBeRefusal() bool {
	if a.status < 400 || a.size() > maxRefusal {
		return false
	}
	kind, coding := a.room.values("Content-Type"), a.room.values("Content-Encoding")
	if len(kind) != 1 || len(coding) > 0 && !strings.EqualFold(coding[0], "identity") {
		return false
	}
	media, _, err := mime.ParseMediaType(kind[0])
	return err == nil && media == "application/problem+json"
}
