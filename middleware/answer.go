package middleware

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// answer is the ResponseWriter of a handler whose answer is to be kept. It
// holds back everything until the handler has returned and the record of it
// was settled, except for what cannot be held back ([answer.leave]). Like any
// ResponseWriter it must not be used concurrently, nor after the handler has
// returned. It has no ReadFrom, so that io.Copy comes through Write.
type answer struct {
	ran    *ran
	out    http.ResponseWriter
	before http.Header // what out had at the beginning; nil if nothing
	header http.Header // out's own, which the handler sets
	http2  bool        // or above: which headers out sends

	status   int   // 0: not written
	declared int64 // Content-Length, -1 if there is none
	written  int64 // what the handler has written, or tried to
	record   []byte
	gone     bool        // it leaves as it is written
	open     bool        // also its status: what is mounted outside may write it through this writer
	trails   bool        // there are trailers of the handler
	late     http.Header // if there are trailers, all headers as the handler had set them when it began to leave
	err      error       // why it cannot leave
	room     *room       // what it is noted in, from the guard's pool
}

func (a *answer) init(out http.ResponseWriter, request *http.Request, r *ran) {
	a.ran, a.out, a.header, a.http2 = r, out, out.Header(), request.ProtoMajor > 1
	if len(a.header) > 0 {
		a.before = a.header.Clone()
	}
	a.room = r.guard.rooms.get()
	a.record = record.Open(a.room.record)
}

// recycle gives the room to other answers. A handler that still writes to this one
// does not write to theirs.
func (a *answer) recycle() {
	a.room.record = a.record
	a.ran.guard.rooms.put(a.room)
	a.record, a.room, a.err = nil, nil, errReturned
}

// Header returns the headers that the handler sets. It finds there what outer
// middleware has set before.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader notes the status and the headers. Informational answers are sent
// at once and not kept, except 101, which nothing of HTTP follows.
func (a *answer) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		// As net/http does: sent later, it would panic when it is too late.
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case a.open:
		a.out.WriteHeader(status)
	case a.status != 0:
		return
	case status == http.StatusSwitchingProtocols:
		a.begin(status)
		_ = a.leave() // the writes that follow return its error
	case status < 200:
		a.inform(status)
	default:
		a.begin(status)
	}
}

// begin fixes the status and the headers: what the handler does to them
// afterwards has no effect, as in net/http, except for trailers.
func (a *answer) begin(status int) {
	a.status, a.declared = status, -1
	if cl := a.header["Content-Length"]; len(cl) > 0 {
		if n, err := strconv.ParseInt(cl[0], 10, 64); err == nil && n >= 0 {
			a.declared = n
		}
	}
	a.room.note(a.before, a.header, a.ran.guard.keep, a.http2)
}

// inform sends an informational answer with the headers of the moment.
func (a *answer) inform(status int) { a.out.WriteHeader(status) }

func (a *answer) Write(p []byte) (int, error) {
	if pass, err := a.admit(len(p)); !pass {
		if err == nil {
			a.record = append(a.record, p...)
			return len(p), nil
		}
		return 0, err
	}
	return a.out.Write(p)
}

// WriteString saves io.WriteString a copy.
func (a *answer) WriteString(s string) (int, error) {
	if pass, err := a.admit(len(s)); !pass {
		if err == nil {
			a.record = append(a.record, s...)
			return len(s), nil
		}
		return 0, err
	}
	return io.WriteString(a.out, s)
}

// admit prepares for n bytes: pass says that they go out, and not into the
// record.
func (a *answer) admit(n int) (pass bool, err error) {
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	size := int64(a.size()) + int64(n)
	a.written += int64(n) // as net/http counts: behind a write that was refused, none is the next one
	switch {
	case a.err != nil:
		return false, a.err
	case a.gone:
		return true, nil
	case !record.BodyAllowed(a.status):
		return false, http.ErrBodyNotAllowed
	case a.declared >= 0 && a.written > a.declared:
		return false, http.ErrContentLength
	case size <= a.ran.guard.responseLimit, size <= a.refusalLimit():
		return false, nil
	}
	if err := a.leave(); err != nil {
		return false, err
	}
	return true, nil
}

func (a *answer) size() int { return len(a.record) - record.Prefix }

func (a *answer) body() []byte { return a.record[record.Prefix:] }

// finish returns the record of the answer when the handler has returned.
func (a *answer) finish(ctx context.Context) ([]byte, error) {
	switch {
	case a.status == 0:
		a.unanswered(ctx)
	case a.status == http.StatusOK && a.size() == 0 && delays(a.out):
		a.hintAtSilence(ctx)
	}
	if !a.gone {
		a.restore()
	}
	switch {
	case a.ran.settled:
		return nil, nil // nothing changes a settled record
	case a.err != nil && a.ran.once.InTransaction():
		return nil, a.err // nothing of it is there to be recorded
	case !a.final():
		return nil, (*notKeptError)(a)
	case !a.replayable(), a.ran.passing.Load():
		return a.tombstone(), nil
	}
	return a.whole(), nil
}

// whole is the record of an answer that is replayable.
func (a *answer) whole() []byte {
	a.sniff()
	whole := record.Close(a.record, a.room.headers, a.status, a.declared >= 0)
	a.record = whole[:len(a.record)] // in the larger room, if it has become one
	return whole
}

// replayable reports whether the answer is at hand, and is all there is to it.
func (a *answer) replayable() bool {
	limit := a.ran.guard.responseLimit
	return !a.gone && a.err == nil && !a.trails && !a.short() && int64(a.size()) <= limit && int64(len(a.room.headers)) <= limit
}

// announced reports whether the answer has a Content-Length, within the limit: it is no
// stream, even if it is flushed.
func (a *answer) announced() bool {
	return a.declared >= 0 && a.declared <= a.ran.guard.responseLimit
}

// short reports whether the handler wrote less than it had announced. Its
// client sees that as an error; a replay must not look whole.
func (a *answer) short() bool {
	return a.declared >= 0 && record.BodyAllowed(a.status) && int64(a.size()) < a.declared
}

// restore gives the headers back the state that they had at WriteHeader, and
// looks for trailers. They are sent, but not kept.
func (a *answer) restore() {
	changed := a.room.changed(a.header)
	a.trails = a.room.trails || changed && a.room.sendsTrailer(a.header)
	if !changed {
		return
	}
	if a.trails {
		a.late = maps.Clone(a.header)
	}
	a.room.restore(a.header)
}

// sniff does what net/http would do when the answer is sent, so that repeats
// do not depend on what it does then.
func (a *answer) sniff() {
	h := a.header
	if _, has := h["Content-Type"]; has || a.size() == 0 || h.Get("Content-Encoding") != "" || h.Get("Transfer-Encoding") != "" {
		return
	}
	kind := []string{http.DetectContentType(a.body())}
	h["Content-Type"] = kind
	a.room.headers = record.AppendHeader(a.room.headers, "Content-Type", kind)
}

// send sends what was held back, and the trailers, which the server looks for
// after the body.
func (a *answer) send() {
	a.out.WriteHeader(a.status)
	if a.size() > 0 {
		// A client that has gone away is the only cause of an error.
		_, _ = a.out.Write(a.body())
	}
	a.trail()
}

// trail gives the headers the state in which the handler has left them, if there
// are trailers among them.
func (a *answer) trail() {
	if a.late != nil {
		clear(a.header)
		maps.Copy(a.header, a.late)
	}
}

// discard makes room for another answer.
func (a *answer) discard() {
	clear(a.header)
	maps.Copy(a.header, a.before)
}
