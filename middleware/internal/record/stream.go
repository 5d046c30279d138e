package record

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// stream sends the answer as it is written from here on, because it is too long, is flushed, or switches protocols.
// If it is final, no repeat runs the handler again, even if the process dies in the middle: the key is held or the
// outcome recorded before the first byte is sent. A flushed answer is recorded while it is sent, and one with a
// Content-Length that is complete is recorded now, as a whole. Of any other answer, only its outcome is recorded.
//
// stream fails if the lease was lost, because the record then belongs to another request, and in a transaction, which
// is committed only after the handler has returned.
func (a *Answer) stream(flushed bool) error {
	switch {
	case a.Err != nil || a.Streamed:
		return a.Err
	case a.run.InTransaction():
		a.Err = &EarlyError{a.settings.Limit}
		return a.Err
	}
	a.restore(flushed)
	if v := a.verdict(); v != forgotten {
		whole := flushed && v == kept && a.replayable() && a.declared <= a.settings.Limit &&
			!StatusAtEnd(a.header.Get("Content-Type")) // it may fail, and a failure must not be the answer of a day
		switch {
		case whole && a.declared >= 0:
			a.settle(a.whole())
		case whole:
			a.recording, a.Err = a.run.Hold(a.tombstone())
			_, typed := a.header["Content-Type"]
			a.untyped = a.recording && !typed
		}
		if !a.settled && !a.recording && a.Err == nil {
			a.settle(a.tombstone())
		}
		if a.Err != nil {
			return a.Err
		}
		a.run.AddHeaders(a.header)
	}
	a.Streamed = true
	err := a.sendHeld()
	if a.recording {
		return nil // see write
	}
	return err
}

// StatusAtEnd reports whether an answer of this type has its status at its end: of gRPC, of gRPC-Web, or of a
// streaming call of Connect.
func StatusAtEnd(contentType string) bool {
	return strings.HasPrefix(contentType, "application/grpc") || strings.HasPrefix(contentType, "application/connect+")
}

// stopRecording records that the answer, a part of which was sent, cannot be replayed.
func (a *Answer) stopRecording() {
	a.recording, a.record = false, []byte(Prefix)
	a.settled = a.run.Settle(a.tombstone()) == nil
}

// settle records receipt as the outcome while the handler still runs.
func (a *Answer) settle(receipt []byte) {
	a.Err = a.run.Settle(receipt)
	a.settled = a.Err == nil
}

// FlushError is called by http.ResponseController. A flushed answer is sent as it is written. But it is held back in
// a transaction until that is committed, with a Content-Length until it is complete, and if it is a refusal, so that
// the key is free when the client gets it.
func (a *Answer) FlushError() error {
	a.flushed = true
	if !a.Streamed {
		if a.Err != nil { // it may be over
			return a.Err
		}
		if !flushes(a.out) {
			return http.NewResponseController(a.out).Flush() // fails, and is known to the guards further out
		}
		if a.Status == 0 {
			a.begin(http.StatusOK)
		}
		incomplete := int64(len(a.body())) < a.declared && a.declared <= a.settings.Limit && BodyAllowed(a.Status)
		if a.run.InTransaction() || a.refusal() || incomplete {
			return nil
		}
		if err := a.stream(true); err != nil {
			return err
		}
	}
	err := http.NewResponseController(a.out).Flush()
	if a.recording {
		return nil // as for a write
	}
	return err
}

// Flush is for handlers that ask for an http.Flusher and refuse to stream without one.
func (a *Answer) Flush() {
	_ = a.FlushError() // http.Flusher cannot report it
}

// flushes reports whether a ResponseController could flush w. Writers of guards can flush if the writers that they
// wrap can.
func flushes(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case *Answer:
			w = t.out
		case *StatusWriter:
			w = t.ResponseWriter
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// Hijack takes over the connection. Before the handler gets the connection, an outcome is recorded,
// whatever the handler will do.
func (a *Answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case a.Err != nil:
		return nil, nil, a.Err
	case a.run.InTransaction():
		return nil, nil, fmt.Errorf("%w: what leaves over the connection would leave before the transaction of the work is committed", http.ErrNotSupported)
	}
	// To take the connection sends nothing, and can fail. Then the handler answers in another
	// way, and that answer can be recorded.
	conn, buf, err := http.NewResponseController(a.out).Hijack()
	switch {
	case err != nil:
		return nil, nil, err
	case a.recording:
		a.stopRecording()
	case !a.Streamed:
		a.Streamed = true
		if a.Status == 0 {
			a.Status = http.StatusSwitchingProtocols
		}
		if a.settle(a.tombstone()); a.Err != nil {
			return nil, nil, errors.Join(a.Err, conn.Close())
		}
	}
	return conn, buf, nil
}

// Unwrap lets http.ResponseController reach the writer of the server.
func (a *Answer) Unwrap() http.ResponseWriter { return a.out }

// EarlyError is the error for an answer in a transaction that cannot be held back until the
// transaction is committed.
type EarlyError struct{ limit int64 }

func (e *EarlyError) Error() string {
	return fmt.Sprintf("middleware: an answer of more than %d bytes, or one that switches protocols, cannot leave before the transaction "+
		"of its work is committed, so that was rolled back", e.limit)
}
