package middleware

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Problem is a refusal, as RFC 9457 describes it. It is an [http.Handler] that
// sends itself as application/problem+json: what [WithErrorHandler] replaces
// and can fall back on.
type Problem struct {
	Status     int           // 400 to 599
	Type       string        // a URI that is stable per case and leads to its description; "": nothing to say beyond the status
	Title      string        // a fixed sentence per type
	RetryAfter time.Duration // 0: no Retry-After
	Header     http.Header   // sent in addition to those, which come first, except for what frames the body; that of a [keyfunc.Error], or nil
	Err        error         // why, for logs and errors.Is; never sent
}

// ServeHTTP sends p: the status, Cache-Control, Retry-After if there is one,
// Header, and the members type, title and status. A status that is not one of a
// failure is sent as 500.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status := p.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	p.writeHeader(w.Header())
	w.Header()["Content-Type"] = []string{"application/problem+json"}
	w.WriteHeader(status)
	// A client that has gone away is the only cause of an error.
	_, _ = w.Write(p.body(status)) //nolint:gosec // JSON, and said to be
}

// writeHeader sets what every answer to p needs, whichever function writes its body.
func (p *Problem) writeHeader(h http.Header) {
	for name, values := range p.Header {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Content-Length", "Transfer-Encoding": // of a body that is not written here
		default:
			h[name] = slices.Clone(values)
		}
	}
	setOnce(h, "Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		// Rounded up: a client that comes back too early is refused once more.
		seconds := int64((p.RetryAfter + time.Second - 1) / time.Second)
		setOnce(h, "Retry-After", strconv.FormatInt(seconds, 10))
	}
}

// setOnce sets a header, whose name is canonical, unless it is what it is to be:
// a guard has set it before it asks for the body.
func setOnce(h http.Header, name, value string) {
	if is := h[name]; len(is) != 1 || is[0] != value {
		h[name] = []string{value}
	}
}

func sendProblem(w http.ResponseWriter, r *http.Request, p *Problem) { p.ServeHTTP(w, r) }

// kind is a type of problem. Its name is its section in docs/problems.md.
type kind struct{ name, title string }

const kindBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

var (
	held            = kind{"held", "Another request for the same thing is still being processed."}
	coolingDown     = kind{"cooling-down", "A request for the same thing was answered a moment ago."}
	keyMissing      = kind{"key-missing", "The request lacks the value that says which requests are the same."}
	keyInvalid      = kind{"key-invalid", "The value that says which requests are the same is malformed."}
	unauthenticated = kind{"unauthenticated", "The request does not say whose it is."}
	bodyTooLarge    = kind{"body-too-large", "The request body is too large."}
	bodyUnreadable  = kind{"body-unreadable", "The request body could not be read to its end."}
	bodyConsumed    = kind{"body-consumed", "The server could not read the request body any more, and did not process the request."}
	keyFailed       = kind{"key-failed", "The server could not find out which requests are the same, and did not process this one."}
	inProgress      = kind{"in-progress", "The first request with this key is still being processed."}
	keyReused       = kind{"key-reused", "The key was used for a different request."}
	firstFailed     = kind{"first-failed", "The first request with this key failed, and its answer cannot be sent again."}
	outcomeUnknown  = kind{"outcome-unknown", "The first request with this key did not finish, and nobody knows how far it came."}
	notReplayable   = kind{"result-not-replayable", "The request was processed, but its answer cannot be sent again."}
	unavailable     = kind{"unavailable", "Duplicates cannot be excluded at the moment, so the request was not processed."}
	shuttingDown    = kind{"shutting-down", "The server is shutting down and did not process the request."}
)

func (k kind) problem(status int, retryAfter time.Duration, err error) *Problem {
	return &Problem{Status: status, Type: kindBase + k.name, Title: k.title, RetryAfter: retryAfter, Err: err}
}

// unservedProblem is the answer to a request that was not processed because the
// Locker could not find out who has its key.
func unservedProblem(err error) *Problem {
	if errors.Is(err, lock.ErrClosed) {
		return shuttingDown.problem(http.StatusServiceUnavailable, time.Second, err)
	}
	return unavailable.problem(http.StatusServiceUnavailable, time.Second, err)
}

// lockProblem is the answer to a request whose lock was not acquired because
// of err.
func (g *guard) lockProblem(err error) *Problem {
	var refused *lock.RefusedError
	switch {
	case errors.As(err, &refused) && errors.Is(err, lock.ErrSettled):
		retryAfter := max(refused.Entry.Left, time.Second)
		if g.cooldownStatus != http.StatusTooManyRequests {
			retryAfter = 0 // chosen so that no client repeats it, which some do with whatever has Retry-After
		}
		return coolingDown.problem(g.cooldownStatus, retryAfter, err)
	case refused != nil:
		// A lease that is renewed does not say when its work ends, so what is
		// left of it is no reason to wait that long.
		return held.problem(g.contention, time.Second, err)
	default:
		return unservedProblem(err)
	}
}

// onceProblem is the answer to a request that [lock.Locker.Once] has neither
// run nor replayed, or whose run lost its lease, because of err. fingerprint is
// that of the request.
func onceProblem(err error, fingerprint []byte) *Problem {
	var refused *lock.RefusedError
	switch {
	case errors.As(err, &refused) && errors.Is(err, lock.ErrMismatch):
		return mismatchProblem(refused, fingerprint)
	case errors.Is(err, lock.ErrAbandoned), errors.Is(err, lock.ErrLost):
		return outcomeUnknown.problem(http.StatusConflict, 0, err)
	case refused != nil:
		return inProgress.problem(http.StatusConflict, time.Second, err)
	default:
		return unservedProblem(err)
	}
}

func mismatchProblem(refused *lock.RefusedError, fingerprint []byte) *Problem {
	theirs := refused.Entry.Fingerprint
	if len(theirs) == 0 || len(fingerprint) == 0 || theirs[0] == fingerprint[0] {
		return keyReused.problem(http.StatusUnprocessableEntity, 0, refused)
	}
	// They were made in different ways, before and after a deployment. That does
	// not say that the requests differ, nor that they do not.
	switch refused.Entry.State {
	case lock.Settled:
		return notReplayable.problem(http.StatusConflict, 0, refused)
	case lock.Abandoned:
		return outcomeUnknown.problem(http.StatusConflict, 0, refused)
	case lock.Held, lock.Free:
	}
	return inProgress.problem(http.StatusConflict, time.Second, refused)
}
