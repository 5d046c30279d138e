package middleware

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// room is what an answer is noted in while its handler runs. The next answers
// of the guard get it once this one was sent: the Locker has its own copy of the
// record by then, and no handler has seen any of it.
type room struct {
	record  []byte   // without the headers
	headers []byte   // those of the record
	sent    []field  // all headers, as they were at WriteHeader
	texts   []string // the values of sent, which the handler cannot reach
	trails  bool     // the handler had set trailers among them, or announced some
}

// field is a header.
type field struct {
	name   string
	values []string
}

const (
	firstRecord = 512
	// maxPooled is the largest that is kept: one long answer must not stay in
	// memory for the sake of many short ones.
	maxPooled = 64 << 10
	maxFields = 256
)

type roomPool struct{ pool sync.Pool }

func (p *roomPool) get() *room {
	if r, ok := p.pool.Get().(*room); ok {
		return r
	}
	return &room{record: make([]byte, 0, firstRecord)}
}

func (p *roomPool) put(r *room) {
	if cap(r.record) > maxPooled || cap(r.headers) > maxPooled || cap(r.sent) > maxFields || cap(r.texts) > maxFields {
		return
	}
	clear(r.sent) // nothing of one client stays in memory for its sake
	clear(r.texts)
	*r = room{record: r.record[:0], headers: r.headers[:0], sent: r.sent[:0], texts: r.texts[:0]}
	p.pool.Put(r)
}

var errReturned = errors.New("middleware: the handler has returned")

// note notes the headers of an answer that begins, and what the handler did to
// those that were there before. It copies the values: a handler can change them in
// place.
func (r *room) note(before, now http.Header, keep headerNames, http2 bool) {
	for name, values := range now {
		first := len(r.texts)
		r.texts = append(r.texts, values...)
		r.sent = append(r.sent, field{name, slices.Clip(r.texts[first:])})
		r.trails = r.trails || announces(before, name, values)
	}
	r.headers = appendHeaders(r.headers, before, now, r.sent, keep, http2)
}

// changed reports whether h is no longer what it was.
func (r *room) changed(h http.Header) bool {
	if len(h) != len(r.sent) {
		return true
	}
	for _, was := range r.sent {
		is, has := h[was.name]
		if !has || !slices.Equal(is, was.values) {
			return true
		}
	}
	return false
}

// restore makes h what it was.
func (r *room) restore(h http.Header) {
	clear(h)
	for _, was := range r.sent {
		h[was.name] = slices.Clone(was.values) // the room goes to other answers
	}
}

// values returns those of a header as they were at WriteHeader, nil if there are
// none.
func (r *room) values(name string) []string {
	for _, was := range r.sent {
		if strings.EqualFold(was.name, name) {
			return was.values
		}
	}
	return nil
}
