package middleware

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// replayedHeader marks an answer that was given before.
const replayedHeader = "Idempotent-Replayed"

var (
	errUnanswered = errors.New("middleware: a request that it sent to another service was not answered")
	errNotKept    = errors.New("middleware: no more is known of the answer than that there was one")
)

// replay sends the answer of an earlier request, marked with mark.
func (g *onceGuard) replay(w http.ResponseWriter, r *http.Request, receipt []byte, mark string) {
	rec, err := record.Read(receipt)
	switch {
	case len(receipt) > 0 && err != nil:
		// Of a newer version of this package, or damaged. It still says that the
		// request was processed.
		g.refuse(w, r, &g.settings, ProblemResultNotReplayable.problem(http.StatusConflict, 0, err))
		return
	case record.IsUnknown(receipt):
		g.refuse(w, r, &g.settings, ProblemOutcomeUnknown.problem(http.StatusConflict, 0, errUnanswered))
		return
	case len(receipt) == 0 || rec.Tombstone:
		rec.SetHeader(w.Header())
		g.refuse(w, r, &g.settings, ProblemResultNotReplayable.problem(http.StatusConflict, 0, errNotKept))
		return
	}
	replayed := [2]string{replayedHeader, mark}
	if rec.Sized {
		rec.SetHeader(w.Header(), replayed, [2]string{"Content-Length", strconv.Itoa(len(rec.Body))})
	} else {
		rec.SetHeader(w.Header(), replayed)
	}
	w.WriteHeader(rec.Status)
	if len(rec.Body) > 0 {
		// A client that has gone away is the only cause of an error.
		_, _ = w.Write(rec.Body)
	}
}
