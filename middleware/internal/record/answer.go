package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// Settings are the settings of one guard for the answers of its handler. They must not be copied.
type Settings struct {
	Keep  []string              // canonical names of headers that are recorded even where outer middleware has set them
	Limit int64                 // of a body that is recorded
	Final func(status int) bool // which answers are final; nil: see Answer.verdict

	OnlyFinal bool // after lock.Commit, an answer that is not Final is not replayed

	buffers sync.Pool // of *buffers
}

// Run is the run of the handler whose answer is recorded.
type Run interface {
	// InTransaction reports whether the handler runs in a transaction, which is committed after it.
	InTransaction() bool

	// Committed reports whether the handler has called lock.Commit.
	Committed() bool

	// Settle records receipt as the outcome before the handler returns. It fails if the lease was lost.
	Settle(receipt []byte) error

	// Hold keeps the key, because an answer begins to be sent and goes on to be recorded. A run that fails leaves
	// tombstone. If held is false without an error, a crash would free the key. Hold fails if the lease was lost.
	Hold(tombstone []byte) (held bool, err error)

	// AddHeaders adds the headers of the guard to a final answer, before it is sent.
	AddHeaders(h http.Header)
}

// Marks are the notes of a handler, and of the code that it calls, about its answer.
type Marks struct {
	// Refused is the status of a refusal by a guard further in, 0 if there is none. It is true only at this moment.
	Refused atomic.Int32

	DoNotKeep atomic.Bool // the answer is not final, whatever its status
	CutOff    atomic.Bool // the end of a flushed answer does not show whether it is whole
	Pending   atomic.Bool // another answer will take the place of the recorded one
}

// Answer is the ResponseWriter of a handler whose answer is recorded. It holds back the answer until the handler has
// returned and the record is settled, except for a stream and an answer that cannot be held back ([Answer.stream]).
// Like any ResponseWriter it must not be used concurrently, nor after the handler has returned. It has no ReadFrom,
// so that io.Copy calls Write.
type Answer struct {
	Status   int   // 0: not written
	Streamed bool  // it is not held back: it is sent as written, its connection was taken over, or a framework outside answers
	Err      error // the reason if it cannot be sent

	settings *Settings
	run      Run
	marks    *Marks
	out      http.ResponseWriter
	before   http.Header // of out at the beginning; nil if empty
	header   http.Header // of out; the handler sets them

	declared     int64 // Content-Length, -1 without one
	written      int64 // bytes that the handler has written, or tried to write
	record       []byte
	settled      bool        // before the handler returned
	flushed      bool        // the handler has asked for it
	recording    bool        // it is streamed, and recorded as well
	untyped      bool        // the stream has begun without a Content-Type
	passesStatus bool        // there is none yet, and outer middleware may send one through this writer
	trails       bool        // the handler has set trailers
	withTrailers http.Header // all headers of the handler when the answer began to be sent; nil without trailers
	buffers      *buffers    // lent by settings
}

// Start prepares a for a handler whose answer goes to out.
func (a *Answer) Start(s *Settings, r Run, marks *Marks, out http.ResponseWriter) {
	a.settings, a.run, a.marks, a.out, a.header = s, r, marks, out, out.Header()
	if len(a.header) > 0 {
		a.before = a.header.Clone()
	}
	var pooled bool
	if a.buffers, pooled = s.buffers.Get().(*buffers); !pooled {
		a.buffers = &buffers{record: make([]byte, 0, 512)}
	}
	a.buffers.record = append(a.buffers.record, Prefix...)
	a.record = a.buffers.record
}

// Header returns the headers that the handler sets, at first with those that outer middleware has set.
func (a *Answer) Header() http.Header { return a.header }

// WriteHeader notes the status and the headers. Informational answers are sent at once and not recorded, except 101,
// which no other answer follows.
func (a *Answer) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		// net/http panics too, but later, while the answer is sent.
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case a.passesStatus:
		a.out.WriteHeader(status)
	case a.Status != 0:
	case status == http.StatusSwitchingProtocols:
		a.begin(status)
		_ = a.stream(false) // the writes that follow return its error
	case status < 200:
		a.out.WriteHeader(status) // with the present headers
	default:
		a.begin(status)
	}
}

func (a *Answer) Write(p []byte) (int, error) { return write(a, p, a.out.Write) }

// WriteString saves io.WriteString a copy.
func (a *Answer) WriteString(s string) (int, error) {
	return write(a, s, func(s string) (int, error) { return io.WriteString(a.out, s) })
}

// write records p, or sends it, or both. A stream that is recorded goes on without its client, like an answer that
// is held back: a handler that stops at a failed write would leave a part as the whole.
func write[T string | []byte](a *Answer, p T, send func(T) (int, error)) (int, error) {
	if a.Status == 0 {
		a.begin(http.StatusOK)
	}
	a.written += int64(len(p)) // as net/http counts: a write that was refused counts, too
	switch {
	case a.Err != nil:
		return 0, a.Err
	case a.Streamed && !a.recording:
	case !BodyAllowed(a.Status):
		return 0, http.ErrBodyNotAllowed
	case a.declared >= 0 && a.written > a.declared:
		return 0, http.ErrContentLength
	case int64(len(a.body()))+int64(len(p)) <= a.settings.Limit:
	case a.recording:
		a.stopRecording()
	default:
		if err := a.stream(false); err != nil {
			return 0, err
		}
	}
	n, err := len(p), error(nil)
	if a.Streamed {
		n, err = send(p)
	}
	if a.Streamed && !a.recording {
		return n, err
	}
	a.record = append(a.record, p...)
	return len(p), nil
}

func (a *Answer) body() []byte { return a.record[len(Prefix):] }

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

// StatusAtEnd reports whether answers of this type have their status at their end: gRPC, or a stream of Connect.
func StatusAtEnd(contentType string) bool {
	return strings.HasPrefix(contentType, "application/grpc") || strings.HasPrefix(contentType, "application/connect+")
}

// stopRecording marks an answer, sent in part, as one without a replay.
func (a *Answer) stopRecording() {
	a.recording, a.record = false, []byte(Prefix)
	a.settled = a.run.Settle(a.tombstone()) == nil
}

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

// Flush is for handlers that refuse to stream without an http.Flusher, which cannot report an error.
func (a *Answer) Flush() { _ = a.FlushError() }

// flushes reports whether a ResponseController could flush w.
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

// Hijack takes over the connection. An outcome is recorded before the handler gets it.
func (a *Answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case a.Err != nil:
		return nil, nil, a.Err
	case a.run.InTransaction():
		return nil, nil, fmt.Errorf("%w: what leaves over the connection would leave before the transaction of the work is committed", http.ErrNotSupported)
	}
	// To take the connection sends nothing. If it fails, the handler answers in another way, which can be recorded.
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

// EarlyError is the error for an answer that cannot be held back until its transaction is committed.
type EarlyError struct{ limit int64 }

func (e *EarlyError) Error() string {
	return fmt.Sprintf("middleware: an answer of more than %d bytes, or one that switches protocols, cannot leave before the transaction "+
		"of its work is committed, so that was rolled back", e.limit)
}
