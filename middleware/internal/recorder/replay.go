package recorder

import (
	"errors"
	"net/http"
	"strconv"

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
	ErrUnanswered = errors.New("middleware: a request that it sent to another service was not answered")
	ErrNotKept    = errors.New("middleware: no more is known of the answer than that there was one")
)

// Replay sends the answer in receipt, marked with mark. If it returns an error, it has sent
// nothing, but may have set headers of the answer. A receipt that cannot be read, because a
// newer version has written it or it is damaged, still shows that the request was processed.
func Replay(w http.ResponseWriter, receipt []byte, mark string) error {
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
	if rec.Sized {
		rec.SetHeader(w.Header(), replayed, [2]string{"Content-Length", strconv.Itoa(len(rec.Body))})
	} else {
		rec.SetHeader(w.Header(), replayed)
	}
	w.WriteHeader(rec.Status)
	if len(rec.Body) > 0 {
		// The only cause of an error is a client that has gone away.
		_, _ = w.Write(rec.Body)
	}
	return nil
}
