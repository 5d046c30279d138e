package record

import (
	"errors"
	"maps"
	"net/http"
)

// Complete completes the answer after the handler has returned. A handler that has written nothing has answered with
// an empty 200, as in net/http. But a failure that outer middleware writes must not become a success: if a writer
// outside the guard was used, the answer has its status, and cannot be replayed. silent reports that the handler has
// set neither status, headers nor body, and outside that a framework outside of the guard answers in its place.
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
		a.restore(true)
	}
	a.trails = a.trails || a.recording && a.sendsTrailer()
	return silent, outside
}

// verdict is the fate of an answer.
type verdict uint8

const (
	forgotten verdict = iota // the next request runs the handler
	noted                    // repeats learn that there was an answer
	kept                     // repeats get it
)

// verdict returns the fate of the answer, as far as it does not depend on the body. After lock.Commit it is at least
// noted: the work must not run again. In a transaction, an answer that is not final rolls the work back, and the
// Locker makes sure that the work does not run again after lock.Commit.
func (a *Answer) verdict() verdict {
	var final bool
	switch {
	case a.refusal():
		return forgotten
	case a.settings.Final != nil:
		final = a.settings.Final(a.Status)
	case a.Status < 400:
		final = true // Retry-After says there when to look for the result of work, which must not begin twice
	case a.Status >= 500, OfCaller(a.Status),
		a.Status == http.StatusRequestTimeout, a.Status == http.StatusTooEarly, a.Status == http.StatusTooManyRequests:
	default:
		after := a.buffers.values("Retry-After")
		final = len(after) == 0 || after[0] == ""
	}
	committed, doNotKeep := a.run.Committed() && !a.run.InTransaction(), a.marks.DoNotKeep.Load()
	switch {
	case !doNotKeep && (final || committed && !a.settings.OnlyFinal):
		return kept
	case committed:
		return noted
	}
	return forgotten
}

// refusal reports whether the answer is the refusal of a guard. A guard in this process notes its refusal, which does
// not count if the handler has replaced it. The header marks the refusal of a guard behind a proxy.
func (a *Answer) refusal() bool {
	if status := int(a.marks.Refused.Load()); status != 0 {
		return status == a.Status
	}
	return a.Status >= 400 && len(a.buffers.values(ProblemHeader)) > 0
}

// statusPageExpired is the status of Laravel for a request whose CSRF token, of a header or a cookie, is out of date.
const statusPageExpired = 419

// StatusClientGone is the status of nginx and others for a request whose client has hung up.
const StatusClientGone = 499

// OfCaller reports whether a status depends on the headers of the request or on its connection, which no guard
// compares: a repeat with others gets another answer.
func OfCaller(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusNotAcceptable,                                       // Accept
		http.StatusLengthRequired,                                      // Content-Length
		http.StatusPreconditionFailed, http.StatusPreconditionRequired, // If-Match
		http.StatusUnsupportedMediaType,         // Content-Type
		http.StatusRequestedRangeNotSatisfiable, // Range
		http.StatusExpectationFailed,            // Expect
		statusPageExpired,
		http.StatusMisdirectedRequest, // Host
		http.StatusLocked,             // If, with the token of WebDAV
		http.StatusUpgradeRequired,    // Upgrade
		http.StatusRequestHeaderFieldsTooLarge,
		StatusClientGone:
		return true
	}
	return false
}

// Receipt returns the record of the completed answer. If it is not final, repeats run the handler again, except those
// that have waited for it, which get receipt if it is not nil.
func (a *Answer) Receipt() (receipt []byte, final bool, err error) {
	switch {
	case a.settled:
		return nil, true, nil // a settled record does not change
	case a.Err != nil && a.run.InTransaction():
		return nil, false, a.Err // rolled back, so there is nothing to record
	}
	v, whole := a.verdict(), a.replayable()
	final = a.recording || v != forgotten
	switch {
	case whole && final == (v == kept):
		return a.whole(), final, nil
	case final:
		return a.tombstone(), true, nil
	}
	return nil, false, nil
}

// replayable reports whether the record would be the whole answer. The first client sees a body that is shorter than
// its Content-Length as an error, so a replay must not look complete.
func (a *Answer) replayable() bool {
	length, limit := int64(len(a.body())), a.settings.Limit
	cutOff := a.flushed && a.declared < 0 && a.marks.CutOff.Load() // also where nothing outside can flush
	return (!a.Streamed || a.recording) && !cutOff && a.Err == nil && !a.trails && length <= limit && int64(len(a.buffers.headers)) <= limit &&
		(length >= a.declared || !BodyAllowed(a.Status))
}

func (a *Answer) whole() []byte {
	if a.untyped && len(a.body()) > 0 { // net/http would give the replay a type
		a.buffers.headers = AppendHeader(a.buffers.headers, "Content-Type", nil)
	}
	var flags byte
	if a.marks.Pending.Load() {
		flags |= Pending
	}
	if a.declared >= 0 {
		flags |= Sized
	}
	if a.recording {
		flags |= Streamed
	}
	whole := Close(a.record, a.buffers.headers, a.Status, flags)
	a.record = whole[:len(a.record)] // in the larger buffer, if it had to grow
	return whole
}

func (a *Answer) tombstone() []byte {
	var flags byte
	if a.marks.Pending.Load() {
		flags = Pending
	}
	return Tombstone(a.Status, a.buffers.values("Location"), flags)
}

// Discard restores the headers for another answer, unless this one was streamed.
func (a *Answer) Discard() {
	if a.Streamed {
		return
	}
	clear(a.header)
	maps.Copy(a.header, a.before)
}

var errReturned = errors.New("middleware: the handler has returned")

// Larger buffers are not kept: one long answer must not stay in memory for many short ones.
const (
	maxPooled = 64 << 10
	maxFields = 256
)

// Send sends the answer that was held back. Then it releases the buffers, so that a handler that still writes to this
// answer does not write to another one.
func (a *Answer) Send() {
	_ = a.sendHeld() // the only cause of an error is a client that has gone away
	if b := a.buffers; cap(a.record) <= maxPooled && cap(b.headers) <= maxPooled && cap(b.fields) <= maxFields && cap(b.texts) <= maxFields {
		clear(b.fields) // the pool must not keep the headers of a client alive
		clear(b.texts)
		*b = buffers{record: a.record[:0], headers: b.headers[:0], fields: b.fields[:0], texts: b.texts[:0]}
		a.settings.buffers.Put(b)
	}
	a.record, a.buffers, a.Err = nil, nil, errReturned
}

// sendHeld sends what was held back so far, and leaves trailers among the headers, where the server reads them.
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
