package recorder

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// ReplayedHeader marks an answer that was given before.
const ReplayedHeader = "Idempotent-Replayed"

// ProblemHeader marks a refusal by a guard. Its value is the kind of the refusal.
const ProblemHeader = "Latch-Problem"

// LifetimeHeader says for how long the key of an answer is remembered.
const LifetimeHeader = "Idempotency-Key-Lifetime"

// Errors of Kept.
var (
	ErrUnanswered = errors.New("middleware: no answer says what became of it")
	ErrNotKept    = errors.New("middleware: no more is known of the answer than that there was one")
)

// Kept returns the answer in receipt, or an error. In h, it sets the Location of an answer that was not
// kept. A receipt that cannot be read, because a newer version has written it or it is damaged, still
// shows that the request was processed.
func Kept(receipt []byte, h http.Header) (record.Record, error) {
	if len(receipt) == 0 {
		return record.Record{}, ErrNotKept
	}
	rec, err := record.Read(receipt)
	switch {
	case err != nil:
		return record.Record{}, err
	case record.IsUnknown(receipt):
		return record.Record{}, ErrUnanswered
	case rec.Tombstone:
		rec.SetHeader(h)
		return record.Record{}, ErrNotKept
	}
	return rec, nil
}

// Replay sends rec, an answer, to r, marked with mark.
func Replay(w http.ResponseWriter, r *http.Request, rec record.Record, mark string) {
	var outside http.Header // of outer middleware, for a page
	origin := r.Header.Get("Origin")
	if origin != "" {
		outside = w.Header().Clone()
	}
	rec.SetHeader(w.Header())
	w.Header()[ReplayedHeader] = []string{mark}
	if rec.Sized {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(rec.Body))}
	}
	ofThisOrigin(w.Header(), outside, origin)
	w.WriteHeader(rec.Status)
	if rec.Streamed {
		_ = http.NewResponseController(w).Flush() // else net/http adds a length, which the first answer did not have
	}
	if len(rec.Body) > 0 {
		// The only cause of an error is a client that has gone away.
		_, _ = w.Write(rec.Body)
	}
}

// ofThisOrigin gives h the Access-Control headers of outside, which outer middleware has set for
// this request, if the headers of the record are for pages of another origin.
func ofThisOrigin(h, outside http.Header, origin string) {
	allowed := h["Access-Control-Allow-Origin"]
	if origin == "" || len(allowed) == 0 || allowed[0] == "*" || allowed[0] == origin {
		return
	}
	other := func(name string, _ []string) bool { return !strings.HasPrefix(name, "Access-Control-") }
	maps.DeleteFunc(outside, other)
	maps.DeleteFunc(h, func(name string, values []string) bool { return !other(name, values) })
	maps.Copy(h, outside)
}
