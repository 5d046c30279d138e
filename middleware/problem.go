package middleware

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/lock"
)

// Problem is a refusal, as RFC 9457 describes it. It is an [http.Handler] that
// sends itself as application/problem+json, or as a [Page] where that is
// preferred: what [WithErrorHandler] replaces and can fall back on.
type Problem struct {
	Status     int           // 400 to 599
	Type       string        // a URI that is stable per case and leads to its description; "": nothing to say beyond the status
	Title      string        // a fixed sentence per type
	Detail     string        // what exactly, such as the header that is missing, in words of the program; "": nothing to add
	RetryAfter time.Duration // 0: no Retry-After
	Header     http.Header   // sent in addition to those, which come first, except for what frames the body; that of a [keyfunc.Error], or nil
	Err        error         // why, for logs and errors.Is; never sent

	once bool // the request, sent again, is processed once: the refusing guard, or one around it, sees to that
}

const (
	problemType = "application/problem+json"
	pageType    = "text/html"
)

// ServeHTTP sends p: the status, Cache-Control, Vary, Retry-After if there is one,
// Header, and as the body the members type, title, detail and status, or the [Page] if r
// prefers text/html ([Problem.Page]). A status that is not one of a failure is
// sent as 500.
func (p *Problem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if page, ok := p.Page(r); ok {
		page.ServeHTTP(w, r)
		return
	}
	p.send(w, r, problemType, p.body(p.status()))
}

// send sends p with this body, which a HEAD request does not get.
func (p *Problem) send(w http.ResponseWriter, r *http.Request, contentType string, body []byte) {
	p.writeHeader(w.Header())
	varyByAccept(w.Header())
	w.Header()["Content-Type"] = []string{contentType}
	w.WriteHeader(p.status())
	if r != nil && r.Method == http.MethodHead {
		return
	}
	// A client that has gone away is the only cause of an error.
	_, _ = w.Write(body) //nolint:gosec // JSON, or a page whose texts and fields are escaped
}

func (p *Problem) status() int {
	if p.Status < 400 || p.Status > 599 {
		return http.StatusInternalServerError
	}
	return p.Status
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

// unservedProblem is the answer to a request that was not processed because the
// Locker could not find out which caller has its key.
func unservedProblem(err error) *Problem {
	if errors.Is(err, lock.ErrClosed) {
		return ProblemShuttingDown.problem(http.StatusServiceUnavailable, time.Second, err)
	}
	return ProblemUnavailable.problem(http.StatusServiceUnavailable, time.Second, err)
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
		return ProblemCoolingDown.problem(g.cooldownStatus, retryAfter, err)
	case refused != nil:
		// A lease that is renewed does not say when its work ends, so what is
		// left of it is no reason to wait that long.
		return ProblemHeld.problem(g.contention, time.Second, err)
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
		return ProblemOutcomeUnknown.problem(http.StatusConflict, 0, err)
	case refused != nil:
		return ProblemInProgress.problem(http.StatusConflict, time.Second, err)
	default:
		return unservedProblem(err)
	}
}

// transactionProblem is the answer to a request whose handler has run in a transaction,
// and whose answer is not to be sent because of err.
func transactionProblem(err error) *Problem {
	_, aborted := errors.AsType[*oncecall.AbortedError](err)
	_, early := errors.AsType[*earlyError](err)
	switch {
	case aborted, early:
		return ProblemRolledBack.problem(http.StatusInternalServerError, 0, err)
	case errors.Is(err, lock.ErrLost):
		// All was rolled back, and what another request does decides.
		return ProblemInProgress.problem(http.StatusConflict, time.Second, err)
	case errors.Is(err, lock.ErrUnknown):
		return ProblemUnconfirmed.problem(http.StatusServiceUnavailable, time.Second, err)
	default:
		return ProblemRolledBack.problem(http.StatusServiceUnavailable, time.Second, err)
	}
}

func mismatchProblem(refused *lock.RefusedError, fingerprint []byte) *Problem {
	theirs := refused.Entry.Fingerprint
	if len(theirs) == 0 || len(fingerprint) == 0 || theirs[0] == fingerprint[0] {
		return ProblemKeyReused.problem(http.StatusUnprocessableEntity, 0, refused)
	}
	// They were made in different ways, before and after a deployment. That does
	// not say that the requests differ, nor that they do not.
	switch refused.Entry.State {
	case lock.Settled:
		return ProblemResultNotReplayable.problem(http.StatusConflict, 0, refused)
	case lock.Abandoned:
		return ProblemOutcomeUnknown.problem(http.StatusConflict, 0, refused)
	case lock.Held, lock.Free:
	}
	return ProblemInProgress.problem(http.StatusConflict, time.Second, refused)
}
