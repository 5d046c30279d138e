package recorder

import "net/http"

// final reports whether the answer is recorded. A refusal is never recorded. An answer after
// lock.Commit is always recorded: the work must not run again. In a transaction, an answer that is
// not final rolls the work back, and the Locker makes sure that the work does not run again after
// lock.Commit.
func (a *Answer) final() bool {
	switch {
	case a.refusal():
		return false
	case a.run.Committed() && !a.run.InTransaction():
		return true
	case a.marks.DoNotKeep.Load():
		return false
	case a.settings.Final != nil:
		return a.settings.Final(a.Status)
	case a.Status < 400:
		return true // Retry-After says there when to look for the result of work, which must not begin twice
	case a.Status >= 500, OfCaller(a.Status),
		a.Status == http.StatusRequestTimeout, a.Status == http.StatusTooEarly, a.Status == http.StatusTooManyRequests:
		return false
	}
	after := a.buffers.values("Retry-After")
	return len(after) == 0 || after[0] == ""
}

// refusal reports whether the answer is the refusal of a guard. A guard in this process notes its
// refusal, which does not count if the handler has replaced it by another answer. The header marks
// the refusal of a guard behind a proxy, also if the body is compressed or has another format.
func (a *Answer) refusal() bool {
	if status := int(a.marks.Refused.Load()); status != 0 {
		return status == a.Status
	}
	return a.Status >= 400 && len(a.buffers.values(ProblemHeader)) > 0
}

// statusPageExpired is the status of Laravel for a request whose CSRF token, of a header or a cookie, is out of date.
const statusPageExpired = 419

// StatusClientGone is the status of nginx and others for a request whose client has hung up.
const StatusClientGone = 499

// OfCaller reports whether a status depends on the headers of the request or on its connection,
// which no guard compares: a repeat with other credentials, or with a corrected header, gets
// another answer.
func OfCaller(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusNotAcceptable,                                       // Accept
		http.StatusLengthRequired,                                      // Content-Length
		http.StatusPreconditionFailed, http.StatusPreconditionRequired, // If-Match
		http.StatusUnsupportedMediaType,         // Content-Type
		http.StatusRequestedRangeNotSatisfiable, // Range
		http.StatusExpectationFailed,            // Expect
		statusPageExpired,
		http.StatusMisdirectedRequest, // Host
		http.StatusLocked,             // If, with the token of WebDAV
		http.StatusUpgradeRequired,    // Upgrade
		http.StatusRequestHeaderFieldsTooLarge,
		StatusClientGone:
		return true
	}
	return false
}
