package middleware

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/oncecall"
)

// notKeptError ends a run of Locker.Once whose answer is sent and not kept. It is that
// answer, until it is sent.
type notKeptError answer

var (
	_ error           = (*notKeptError)(nil)
	_ oncecall.Sharer = (*notKeptError)(nil)
)

func (*notKeptError) Error() string { return "middleware: the answer is not kept" }

// Shared reports whether the answer says anything to other requests. One that depends
// on the caller does not: the next one may be signed in.
func (n *notKeptError) Shared() bool {
	return n.status != http.StatusUnauthorized && n.status != http.StatusForbidden
}

// Share returns the answer for requests which have waited for it, and would
// otherwise each do what has just failed.
func (n *notKeptError) Share() error {
	a, f := (*answer)(n), &failure{status: n.status}
	if a.replayable() {
		f.record = slices.Clone(a.whole()) // the room of this one goes to other answers
	}
	return f
}

// failure is how a request has failed that others have waited for.
type failure struct {
	status int
	record []byte // nil if the answer cannot be sent again
}

func (*failure) Error() string { return "middleware: the first request failed" }

// notKeptMark is what replayedHeader says of an answer that only those requests get
// which have waited for it: the next one with its key runs.
const notKeptMark = "not-kept"

// replayFailure sends the answer of a request that has failed with err, for which
// this one has waited.
func (g *onceGuard) replayFailure(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.record == nil {
		g.refuse(w, r, &g.settings, ProblemFirstFailed.problem(http.StatusServiceUnavailable, time.Second, err))
		return
	}
	g.replay(w, r, f.record, notKeptMark)
	keepOut(r, f.status)
}
