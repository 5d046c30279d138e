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

// Replay sends nothing, and returns one of these, if the receipt has no answer.
var (
	ErrUnanswered = errors.New("middleware: no answer says what became of it")
	ErrNotKept    = errors.New("middleware: no more is known of the answer than that there was one")
)

// Replay sends the answer in receipt to r, marked with mark. If it returns an error, it has sent
// nothing, but may have set headers of the answer. A receipt that cannot be read, because a
// newer version has written it or it is damaged, still shows that the request was processed.
func Replay(w http.ResponseWriter, r *http.Request, receipt []byte, mark string) error {
	rec, err := record.Read(receipt)
	switch {
	case len(receipt) > 0 && err != nil:
		return err
	case record.IsUnknown(receipt):
		return ErrUnanswered
	case len(receipt) == 0 || rec.Tombstone:
		rec.SetHeader(w.Header())
		return ErrNotKept
	}
	replayed := [2]string{ReplayedHeader, mark}
	var outside http.Header // of outer middleware, for a page
	origin := r.Header.Get("Origin")
	if origin != "" {
		outside = w.Header().Clone()
	}
	if rec.Sized {
		rec.SetHeader(w.Header(), replayed, [2]string{"Content-Length", strconv.Itoa(len(rec.Body))})
	} else {
		rec.SetHeader(w.Header(), replayed)
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
	return nil
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
