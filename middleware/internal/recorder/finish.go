package recorder

import (
	"maps"
	"net/http"
	"slices"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Completion says whether a handler that has returned has answered.
type Completion uint8

const (
	// Answered says that the handler has answered.
	Answered Completion = iota
	// Silent says that the handler has set neither status, headers nor body.
	Silent
	// Outside says that the handler has not answered, and that a framework outside of the guard
	// answers.
	Outside
)

// Complete completes the answer after the handler has returned. A handler that has written nothing
// has answered with an empty 200, as in net/http. But a failure that outer middleware writes must
// not become a success: if a writer outside the guard was used, the answer has its status, and
// cannot be replayed.
func (a *Answer) Complete() Completion {
	how := Answered
	switch {
	case a.status == 0 && a.marks.DoNotKeep.Load():
		a.status, a.streamed, a.passesStatus = http.StatusInternalServerError, true, true
	case a.status == 0:
		status, outside := AnsweredOutside(a.out)
		a.begin(status)
		how, a.streamed, a.passesStatus = Silent, outside, outside
		if outside {
			how = Outside
		}
	case a.status == http.StatusOK && a.size() == 0 && isOfGin(a.out):
		how = Silent
	}
	if how == Silent && len(a.header) != len(a.before) {
		how = Answered
	}
	if !a.streamed {
		a.restore()
	}
	a.trails = a.trails || a.recording && a.buffers.sendsTrailer(a.header)
	return how
}

// Receipt returns the record of the completed answer. kept is false for an answer that is not
// final: repeats run the handler again.
func (a *Answer) Receipt() (receipt []byte, kept bool, err error) {
	switch {
	case a.settled:
		return nil, true, nil // a settled record does not change
	case a.err != nil && a.run.InTransaction():
		return nil, false, a.err // rolled back, so there is nothing to record
	case !a.recording && !a.final():
		return nil, false, nil
	case !a.replays():
		return a.tombstone(), true, nil
	}
	return a.whole(), true, nil
}

// Copy returns a copy of the record of an answer, final or not, nil if it cannot be replayed.
func (a *Answer) Copy() []byte {
	if !a.replayable() {
		return nil
	}
	return slices.Clone(a.whole()) // the buffers go to other answers
}

// Code returns the status, 0 if no status was written.
func (a *Answer) Code() int { return a.status }

// Limit returns the size in bytes of the largest body that is recorded.
func (a *Answer) Limit() int64 { return a.settings.Limit }

// Streamed reports whether there is no answer to send: it was sent as it was written, the handler
// has taken over its connection, or a framework outside the guard answers.
func (a *Answer) Streamed() bool { return a.streamed }

// Failed returns the error that keeps the answer from being sent, or nil.
func (a *Answer) Failed() error { return a.err }

// Send sends the answer that was held back, and the trailers, which the server reads after the
// body. Then it releases the buffers for other answers, so that a handler that still writes to
// this answer does not write to another one.
func (a *Answer) Send() {
	a.out.WriteHeader(a.status)
	if a.size() > 0 {
		// The only cause of an error is a client that has gone away.
		_, _ = a.out.Write(a.body())
	}
	a.setTrailers()
	a.buffers.record = a.record
	a.buffers.release(&a.settings.buffers)
	a.record, a.buffers, a.err = nil, nil, errReturned
}

// Discard restores the headers for another answer, unless this one was streamed.
func (a *Answer) Discard() {
	if a.streamed {
		return
	}
	clear(a.header)
	maps.Copy(a.header, a.before)
}

// whole returns the record of a replayable answer.
func (a *Answer) whole() []byte {
	switch {
	case !a.recording:
		a.sniff()
	case a.untyped && a.size() > 0: // net/http would give the replay a type
		a.buffers.headers = record.AppendHeader(a.buffers.headers, "Content-Type", nil)
	}
	whole := record.Close(a.record, a.buffers.headers, a.status, a.declared >= 0)
	a.record = whole[:len(a.record)] // in the larger buffer, if it had to grow
	if a.recording {
		record.MarkStreamed(whole)
	}
	return a.marked(whole)
}

// tombstone returns the record of an answer that cannot be replayed.
func (a *Answer) tombstone() []byte {
	return a.marked(record.Tombstone(a.status, sentValues(a.buffers.values("Location"), a.http2)))
}

func (a *Answer) marked(receipt []byte) []byte {
	if a.marks.Pending.Load() {
		record.MarkPending(receipt)
	}
	return receipt
}

// replayable reports whether the record would be the whole answer.
func (a *Answer) replayable() bool {
	limit := a.settings.Limit
	cutOff := a.flushed && a.declared < 0 && a.marks.CutOff.Load() // also where nothing outside can flush
	return (!a.streamed || a.recording) && !cutOff && a.err == nil && !a.trails && !a.short() && int64(a.size()) <= limit && int64(len(a.buffers.headers)) <= limit
}

// replays reports whether repeats of a final answer get it again, and not only that there was one.
func (a *Answer) replays() bool {
	return a.replayable() && !a.marks.DoNotKeep.Load() && (!a.settings.OnlyFinal || a.settings.Final(a.status))
}

// short reports whether the body is shorter than its Content-Length. The first client sees this as
// an error, so a replay must not look complete.
func (a *Answer) short() bool {
	return a.declared >= 0 && record.BodyAllowed(a.status) && int64(a.size()) < a.declared
}

// restore sets the headers to their state at WriteHeader, and looks for trailers, which are sent
// and not recorded.
func (a *Answer) restore() {
	changed := a.buffers.changed(a.header)
	a.trails = a.buffers.trailers || changed && a.buffers.sendsTrailer(a.header)
	if !changed {
		return
	}
	if a.trails {
		a.withTrailers = maps.Clone(a.header)
	}
	a.buffers.restore(a.header)
}

// setTrailers sets the headers to the state in which the handler has left them, if there are
// trailers among them.
func (a *Answer) setTrailers() {
	if a.withTrailers != nil {
		clear(a.header)
		maps.Copy(a.header, a.withTrailers)
	}
}

// sniff sets Content-Type as net/http would do later, so that repeats get the same type.
func (a *Answer) sniff() {
	h := a.header
	if _, has := h["Content-Type"]; has || a.size() == 0 || h.Get("Content-Encoding") != "" || h.Get("Transfer-Encoding") != "" {
		return
	}
	kind := []string{http.DetectContentType(a.body())}
	h["Content-Type"] = kind
	a.buffers.headers = record.AppendHeader(a.buffers.headers, "Content-Type", kind)
}
