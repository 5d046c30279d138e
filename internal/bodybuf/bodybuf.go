// Package bodybuf reads request bodies ahead of the handler. A body is read from the network
// once and kept once, for all readers of its request, and the handler still gets every byte.
package bodybuf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
)

// ErrTooLarge is matched by the error of [Bytes] for a body over its limit, or over the limit of
// an [http.MaxBytesReader] around it.
var ErrTooLarge = errors.New("the request body is too large")

const (
	minRead  = 512
	tiny     = 64
	small    = 256
	maxFirst = 64 << 10 // a Content-Length is only a claim, so it does not reserve more than this
)

// Limit sets the limit of the body of r for all later calls of [Bytes], in place of their own.
// It must be positive. Limit replaces r.Body, and reads nothing. A copy of r that was made before
// keeps its body. A second Limit replaces the first: of nested guards, the innermost knows its
// handler best.
func Limit(r *http.Request, limit int64) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b, ok := r.Body.(*body)
	if !ok {
		b = newBody(r)
		r.Body = b
	}
	b.limit = limit
}

// Bytes returns the body of r, of up to limit bytes, or up to the limit that [Limit] has set. The
// next reader of r.Body gets the body from its first byte. The caller must not change the bytes.
//
// The first call replaces r.Body. Later calls, on r or on a copy of r that was made since, return
// the same bytes. All other fields of r stay as they are. Its trailers are complete once Bytes has
// returned. A nil body and [http.NoBody] are empty.
//
// If other code has read the body, or a part of it, and not put it back, the error matches
// [ErrConsumed], and the bytes are the rest. If that code has parsed a form ([FormParsed]), there is
// no error.
//
// Other errors match [ErrTooLarge], or come from the reader of the body. After such an error, a
// reader of r.Body still gets the client's bytes and then the client's error, and a call with a
// higher limit continues where this one ended. Bytes must not run at the same time as another
// reader of the same body.
func Bytes(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, consumed(r, nil)
	}
	b, ok := r.Body.(*body)
	if ok && b.limit > 0 {
		limit = b.limit
	}
	// A body whose Content-Length is over the limit is not read, so a client that waits for
	// "100 Continue" never sends it.
	if r.ContentLength > limit && (!ok || b.unread()) {
		return nil, tooLarge(limit)
	}
	if !ok {
		b = newBody(r)
		r.Body = b
	}
	if cap(b.data) == 0 {
		b.data = make([]byte, 0, min(max(r.ContentLength, 0), maxFirst)+1)
	}
	if !b.passed {
		b.pos = 0
		b.fill(limit)
	}
	switch {
	case b.passed && len(b.data) == 0: // other code has read from it since Limit
		return nil, lost(r, nil)
	case b.passed || int64(len(b.data)) > limit:
		return nil, tooLarge(limit)
	case b.whole:
		if err := consumed(r, b.data); err != nil {
			return b.data, err
		}
		return b.data, nil
	case errors.Is(b.err, http.ErrBodyReadAfterClose):
		return nil, lost(r, b.err)
	}
	return nil, b.failure()
}

// Verdict returns the result of check for data, which [Content] has returned for r. check is called
// once for each body, and later calls return its result: all callers have to pass the same
// function. Verdict must not run at the same time as another reader of the same body.
func Verdict(r *http.Request, data []byte, check func(data []byte) error) error {
	b, ok := r.Body.(*body)
	if !ok {
		return check(data) // r has no body, so data is empty
	}
	if !b.checked {
		b.verdict, b.checked = check(data), true
	}
	return b.verdict
}

func (b *body) failure() error {
	if _, ok := errors.AsType[*http.MaxBytesError](b.err); ok {
		return fmt.Errorf("%w: %w", ErrTooLarge, b.err)
	}
	return fmt.Errorf("reading the request body: %w", b.err)
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: it may have %d bytes", ErrTooLarge, limit)
}

// body replays data, and then reads from src. Read is for one goroutine at a time. Close may be
// called during a Read, as an HTTP transport does.
type body struct {
	src    io.ReadCloser
	data   []byte // read ahead
	err    error  // the end of src; nil before
	pos    int    // how much of data was replayed
	limit  int64  // set by Limit; 0: none
	whole  bool   // src ended with io.EOF itself; an error that wraps it is a failure
	passed bool   // bytes after data went to a reader and were not kept
	closed atomic.Bool

	content []byte // of Content; nil before

	checked bool
	verdict error // of Verdict, once checked
}

// unread reports whether src was not read from yet.
func (b *body) unread() bool { return len(b.data) == 0 && b.err == nil && !b.passed }

// newBody returns a body over r.Body. A small one has room for its data in the same allocation, and
// for a byte more, so that the read which finds the end need not grow it.
func newBody(r *http.Request) *body {
	switch length := r.ContentLength; {
	case 0 <= length && length < tiny:
		whole := &struct {
			body
			room [tiny]byte
		}{body: body{src: r.Body}}
		whole.data = whole.room[:0]
		return &whole.body
	case length < small: // or without a Content-Length
		whole := &struct {
			body
			room [small]byte
		}{body: body{src: r.Body}}
		whole.data = whole.room[:0]
		return &whole.body
	default:
		return &body{src: r.Body} // Bytes makes room for its data
	}
}

// fill reads from src until it ends, or data has one byte more than limit.
func (b *body) fill(limit int64) {
	most := int(min(limit, math.MaxInt-1)) + 1
	for b.err == nil && len(b.data) < most {
		if len(b.data) == cap(b.data) {
			b.data = slices.Grow(b.data, min(max(len(b.data), minRead), most-len(b.data)))
		}
		n, _ := b.next(b.data[len(b.data):min(cap(b.data), most)])
		b.data = b.data[:len(b.data)+n]
	}
}

// next reads from src, and notes its end.
func (b *body) next(p []byte) (int, error) {
	n, err := b.src.Read(p)
	b.err, b.whole = err, err == io.EOF
	return n, err
}

func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case b.pos < len(b.data):
		n := copy(p, b.data[b.pos:])
		b.pos += n
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	n, err := b.next(p)
	b.passed = b.passed || n > 0
	return n, err
}

// Close closes the client's body, once.
func (b *body) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.src.Close()
}
