package recorder

import (
	"maps"
	"net/http"
	"slices"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Complete completes the answer after the handler has returned. A handler that has written nothing
// has answered with an empty 200, as in net/http. But a failure that outer middleware writes must
// not become a success: if a writer outside the guard was used, the answer has its status, and
// cannot be replayed. silent reports that the handler has set neither status, headers nor body, and
// outside that a framework outside of the guard answers in its place.
func (a *Answer) Complete() (silent, outside bool) {
	switch {
	case a.Status == 0 && a.marks.DoNotKeep.Load():
		a.Status, a.Streamed, a.passesStatus = http.StatusInternalServerError, true, true
	case a.Status == 0:
		var status int
		status, outside = AnsweredOutside(a.out)
		a.begin(status)
		silent, a.Streamed, a.passesStatus = !outside, outside, outside
	case a.Status == http.StatusOK && len(a.body()) == 0:
		_, silent = a.out.(ginWriter) // an adapter may have written gin's implied 200
	}
	silent = silent && len(a.header) == len(a.before)
	if !a.Streamed {
		a.restore()
	}
	a.trails = a.trails || a.recording && a.buffers.sendsTrailer(a.header)
	return silent, outside
}

// Receipt returns the record of the completed answer. kept is false for an answer that is not
// final: repeats run the handler again.
func (a *Answer) Receipt() (receipt []byte, kept bool, err error) {
	switch {
	case a.settled:
		return nil, true, nil // a settled record does not change
	case a.Err != nil && a.run.InTransaction():
		return nil, false, a.Err // rolled back, so there is nothing to record
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

// Send sends the answer that was held back. Then it releases the buffers for other answers, so that
// a handler that still writes to this answer does not write to another one.
func (a *Answer) Send() {
	_ = a.sendHeld() // the only cause of an error is a client that has gone away
	a.buffers.record = a.record
	a.buffers.release(&a.settings.buffers)
	a.record, a.buffers, a.Err = nil, nil, errReturned
}

// Discard restores the headers for another answer, unless this one was streamed.
func (a *Answer) Discard() {
	if a.Streamed {
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
	case a.untyped && len(a.body()) > 0: // net/http would give the replay a type
		a.buffers.headers = record.AppendHeader(a.buffers.headers, "Content-Type", nil)
	}
	var flags byte
	if a.marks.Pending.Load() {
		flags |= record.Pending
	}
	if a.declared >= 0 {
		flags |= record.Sized
	}
	if a.recording {
		flags |= record.Streamed
	}
	whole := record.Close(a.record, a.buffers.headers, a.Status, flags)
	a.record = whole[:len(a.record)] // in the larger buffer, if it had to grow
	return whole
}

// tombstone returns the record of an answer that cannot be replayed.
func (a *Answer) tombstone() []byte {
	var flags byte
	if a.marks.Pending.Load() {
		flags = record.Pending
	}
	return record.Tombstone(a.Status, a.buffers.values("Location"), flags)
}

// replayable reports whether the record would be the whole answer.
func (a *Answer) replayable() bool {
	limit := a.settings.Limit
	cutOff := a.flushed && a.declared < 0 && a.marks.CutOff.Load() // also where nothing outside can flush
	return (!a.Streamed || a.recording) && !cutOff && a.Err == nil && !a.trails && !a.short() && int64(len(a.body())) <= limit && int64(len(a.buffers.headers)) <= limit
}

// replays reports whether repeats of a final answer get it again, and not only that there was one.
func (a *Answer) replays() bool {
	return a.replayable() && !a.marks.DoNotKeep.Load() && (!a.settings.OnlyFinal || a.settings.Final(a.Status))
}

// short reports whether the body is shorter than its Content-Length. The first client sees this as
// an error, so a replay must not look complete.
func (a *Answer) short() bool {
	return a.declared >= 0 && record.BodyAllowed(a.Status) && int64(len(a.body())) < a.declared
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

// sendHeld sends what was held back so far, and leaves the trailers of the handler among the headers, where
// the server reads them after the body.
func (a *Answer) sendHeld() (err error) {
	a.out.WriteHeader(a.Status)
	if len(a.body()) > 0 {
		_, err = a.out.Write(a.body())
	}
	if a.withTrailers != nil {
		clear(a.header)
		maps.Copy(a.header, a.withTrailers)
	}
	return err
}

// sniff sets Content-Type as net/http would do later, so that repeats get the same type.
func (a *Answer) sniff() {
	h := a.header
	if _, has := h["Content-Type"]; has || len(a.body()) == 0 || h.Get("Content-Encoding") != "" || h.Get("Transfer-Encoding") != "" {
		return
	}
	kind := []string{http.DetectContentType(a.body())}
	h["Content-Type"] = kind
	a.buffers.headers = record.AppendHeader(a.buffers.headers, "Content-Type", kind)
}
