// Package bodybuf reads request bodies ahead of the handler. However many
// readers of one request ask for its body, it is read from the network once and
// kept once, and the handler still gets every byte of it.
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

// ErrTooLarge is matched by the error of [Bytes] for a body over the limit,
// ours or that of an [http.MaxBytesReader] around it.
var ErrTooLarge = errors.New("the request body is too large")

const (
	minRead  = 512
	tiny     = 64
	small    = 256
	maxFirst = 64 << 10 // a Content-Length is only a claim, so it does not reserve more than this
)

// Limit sets the limit that [Bytes] has for the body of r from now on, whatever
// limit it is called with. It must be positive. Nothing is read here. r.Body is
// replaced in place; a copy of r that was made before keeps its own. A limit that was set before is
// replaced: of nested guards, the innermost knows best what its handler takes.
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

// Bytes returns the body of r, which has to fit in limit bytes unless [Limit]
// has set another limit, and leaves r.Body so that the next reader gets it from
// its first byte. The caller must not change the bytes.
//
// The first call replaces r.Body in place; later calls, on r or on a copy of it
// made since, return the same bytes. r's other fields stay as they are; its
// trailers are those of the client, complete once Bytes has returned. A nil
// body and [http.NoBody] are empty.
//
// Of a body that was read before and not put back there are no bytes, or the white
// space at its end. If a form was parsed out of it, that is no error, and
// [FormParsed] says so; else the error matches [ErrConsumed].
//
// Other errors match [ErrTooLarge], or are what reading the body failed with. In
// both cases what was read is put back, so that who goes on reading r.Body sees
// the client's own bytes and error, and a call with a higher limit goes on
// where this one ended. Bytes must not run at the same time as another reader
// of the same body.
func Bytes(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, consumed(r, nil)
	}
	b, ok := r.Body.(*body)
	if ok && b.limit > 0 {
		limit = b.limit
	}
	// Nothing is read of a body that announces itself as too large: a client
	// that sent "Expect: 100-continue" then never sends it.
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
	case b.passed && len(b.data) == 0: // between Limit and here
		return nil, lost(r, nil)
	case b.passed || int64(len(b.data)) > limit:
		return nil, tooLarge(limit)
	case b.whole:
		if err := consumed(r, b.data); err != nil {
			return nil, err
		}
		return b.data, nil
	case errors.Is(b.err, http.ErrBodyReadAfterClose):
		return nil, lost(r, b.err)
	}
	return nil, b.failure()
}

// Verdict returns what check says of data, which [Bytes] has returned for r: however many
// ask, it is called once for each body, so all have to ask with the same function. Verdict
// must not run at the same time as another reader of the same body.
func Verdict(r *http.Request, data []byte, check func(data []byte) error) error {
	b, ok := r.Body.(*body)
	if !ok {
		return check(data) // of nothing
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

// body replays data and then reads on in src. Read is for one goroutine at a
// time; Close may be called at the same time, as an HTTP transport does.
type body struct {
	src    io.ReadCloser
	data   []byte // what was read ahead
	err    error  // how src ended; nil if it did not yet
	pos    int    // how much of data was replayed
	limit  int64  // that Limit has set; 0: none
	whole  bool   // src ended with io.EOF itself; an error that wraps it is a failure
	passed bool   // bytes behind data went to a reader and were not kept
	closed atomic.Bool

	checked bool
	verdict error // of Verdict, once checked
}

// unread reports whether nothing was asked of src yet.
func (b *body) unread() bool { return len(b.data) == 0 && b.err == nil && !b.passed }

// newBody returns the body of r, with room for what is announced of it. One byte
// of room beyond the end lets the end be seen without growing. A small one and
// its data are one allocation.
func newBody(r *http.Request) *body {
	switch length := r.ContentLength; {
	case 0 <= length && length < tiny:
		whole := &struct {
			body
			room [tiny]byte
		}{body: body{src: r.Body}}
		whole.data = whole.room[:0]
		return &whole.body
	case length < small: // or not announced
		whole := &struct {
			body
			room [small]byte
		}{body: body{src: r.Body}}
		whole.data = whole.room[:0]
		return &whole.body
	default:
		return &body{src: r.Body} // and the room when it is read, which may be never
	}
}

// fill reads until src ends or data has one byte more than limit.
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

// next reads on in src and remembers how that ended.
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
