package middleware

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// leave lets the answer go out as it is written, because it is too long, is
// flushed, or takes over the connection. If the answer is final, its outcome
// is recorded before the first byte: no repeat may run the handler again for
// the reason that this answer cannot be kept, even if the process dies in the
// middle of it. One that is flushed when all that it has announced is written is
// recorded as it is.
//
// It fails if the lease was lost, since the record is another request's then, and in a
// transaction, which is committed when the handler has returned.
func (a *answer) leave() error {
	if a.err != nil || a.gone {
		return a.err
	}
	if a.ran.once.InTransaction() {
		a.err = &earlyError{a.ran.guard.responseLimit}
		return a.err
	}
	a.restore()
	if a.final() {
		receipt := a.tombstone
		if a.announced() && a.replayable() {
			receipt = a.whole
		}
		if err := a.ran.settle(receipt()); err != nil {
			a.err = err
			return err
		}
		a.ran.report.add(a.out.Header())
	}
	a.gone = true
	a.out.WriteHeader(a.status)
	a.trail()
	if a.size() == 0 {
		return nil
	}
	_, err := a.out.Write(a.body()) //nolint:gosec // what the handler wrote, to whom it wrote it
	return err
}

// FlushError is what http.ResponseController calls. A flushed answer cannot be
// replayed. Where nothing could be flushed anyway, the answer is held back; so
// is one that has announced its length, until all of it is written; and
// one that may be a refusal of a service behind a proxy: a proxy that flushes
// does so before the body is there, which says whether it is one. One of a transaction is
// held back until that is committed.
func (a *answer) FlushError() error {
	if !a.gone {
		if a.err != nil { // it may be over
			return a.err
		}
		if !flushes(a.out) {
			return http.ErrNotSupported
		}
		if a.status == 0 {
			a.begin(http.StatusOK)
		}
		if a.ran.once.InTransaction() || a.mayBeRefusal() || a.announced() && a.short() {
			return nil
		}
		if err := a.leave(); err != nil {
			return err
		}
	}
	return http.NewResponseController(a.out).Flush()
}

// Flush is there for handlers that ask for an http.Flusher and refuse to
// stream without one.
func (a *answer) Flush() {
	// http.Flusher has no way to report it.
	_ = a.FlushError()
}

// flushes reports whether a ResponseController could flush w.
func flushes(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// Hijack takes over the connection. The outcome is recorded whatever it will
// be, before the handler has the connection.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case a.err != nil:
		return nil, nil, a.err
	case a.ran.once.InTransaction():
		return nil, nil, fmt.Errorf("%w: what leaves over the connection would leave before the transaction of the work is committed", http.ErrNotSupported)
	}
	// Taking it sends nothing, and may turn out to be impossible: then the
	// handler will answer in another way, which can be kept.
	conn, buf, err := http.NewResponseController(a.out).Hijack()
	if err != nil || a.gone {
		return conn, buf, err
	}
	a.gone = true
	if a.status == 0 {
		a.status = http.StatusSwitchingProtocols
	}
	if err := a.ran.settle(a.tombstone()); err != nil {
		a.err = err
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, buf, nil
}

// Unwrap lets http.ResponseController reach what the server offers.
func (a *answer) Unwrap() http.ResponseWriter { return a.out }

// earlyError says that an answer of work in a transaction would have to leave before that
// is committed.
type earlyError struct{ limit int64 }

func (e *earlyError) Error() string {
	return fmt.Sprintf("middleware: an answer of more than %d bytes, or one that switches protocols, cannot leave before the transaction "+
		"of its work is committed, so that was rolled back", e.limit)
}

// tombstone is the record of an answer that is not kept.
func (a *answer) tombstone() []byte {
	return record.Tombstone(a.status, sentValues(a.room.values("Location"), a.http2))
}
