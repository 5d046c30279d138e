package recorder

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// buffers hold an answer while its handler runs. Later answers of the guard reuse them: the Locker
// has its own copy of the record, and no handler has access to them.
type buffers struct {
	record   []byte   // without the headers
	headers  []byte   // of the record
	fields   []field  // all headers, as they were at WriteHeader
	texts    []string // the values of fields, copied so that the handler cannot change them
	trailers bool     // the handler had set trailers among the fields, or announced trailers
}

// field is a header.
type field struct {
	name   string
	values []string
}

const (
	firstRecord = 512

	// Larger buffers are not kept: one long answer must not stay in memory for many short ones.
	maxPooled = 64 << 10
	maxFields = 256
)

// release puts b into pool for another answer.
func (b *buffers) release(pool *sync.Pool) {
	if cap(b.record) > maxPooled || cap(b.headers) > maxPooled || cap(b.fields) > maxFields || cap(b.texts) > maxFields {
		return
	}
	clear(b.fields) // the pool must not keep the headers of a client alive
	clear(b.texts)
	*b = buffers{record: b.record[:0], headers: b.headers[:0], fields: b.fields[:0], texts: b.texts[:0]}
	pool.Put(b)
}

var errReturned = errors.New("middleware: the handler has returned")

// changed reports whether h differs from the headers at WriteHeader.
func (b *buffers) changed(h http.Header) bool {
	if len(h) != len(b.fields) {
		return true
	}
	for _, was := range b.fields {
		is, has := h[was.name]
		if !has || !slices.Equal(is, was.values) {
			return true
		}
	}
	return false
}

// restore makes h the headers at WriteHeader.
func (b *buffers) restore(h http.Header) {
	clear(h)
	for _, was := range b.fields {
		h[was.name] = slices.Clone(was.values) // the buffers go to other answers
	}
}

// values returns the values of a header at WriteHeader, nil if there were none.
func (b *buffers) values(name string) []string {
	for _, was := range b.fields {
		if strings.EqualFold(was.name, name) {
			return was.values
		}
	}
	return nil
}
