package client

import (
	"errors"
	"hash/maphash"
	"io"
	"net/http"
	"slices"
	"sync"
)

// resumableBody is the body of the answer to a request with a key. If it breaks off, the request is
// sent again. If the new answer is the same, its body is read from the same place on.
type resumableBody struct {
	call *call
	seen maphash.Hash // of the bytes read
	read int64        // number of bytes read

	mu     sync.Mutex // so that Close may be called during Read
	resp   http.Response
	closed bool
	err    error // the error that ended the body
}

var errOther = errors.New("client: the request was sent again and got another answer")

// makeResumable gives resp a body that can be resumed after its connection breaks. It does not change
// the body of a failure: a server need not keep a failure. So another send could run the request
// again, and place an order after the caller has read that there is none.
func (c *call) makeResumable(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.Trailer != nil || resp.StatusCode >= http.StatusBadRequest ||
		resp.StatusCode == http.StatusSwitchingProtocols || c.attempts == 1 || !c.keyed {
		return
	}
	c.answer.call, c.answer.resp = c, *resp
	resp.Body = &c.answer
}

func (b *resumableBody) Read(p []byte) (int, error) {
	for {
		if b.err != nil {
			return 0, b.err
		}
		n, err := b.body().Read(p)
		_, _ = b.seen.Write(p[:n])
		b.read += int64(n)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, io.EOF) || !b.resume(err):
			b.err = err
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (b *resumableBody) Close() error {
	b.mu.Lock()
	b.closed = true
	body := b.resp.Body
	b.mu.Unlock()
	return body.Close()
}

func (b *resumableBody) body() io.Reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resp.Body
}

// ended reports whether the caller has closed the body.
func (b *resumableBody) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// resume sends the request again after the answer has broken off with err. It reports whether an
// answer could be resumed.
func (b *resumableBody) resume(err error) bool {
	c := b.call
	resp := b.resp
	for {
		if b.ended() {
			return false
		}
		v := judge(c.shown.Context(), c.shown.Method, c.keyed, nil, nil, err)
		body, again, ended := c.repeat(v, &resp, err)
		if ended != nil || !again {
			_ = resp.Body.Close() // the caller has only the first answer to close
			return false
		}
		next, failed := c.run(body)
		if failed != nil {
			return false
		}
		if err = b.skip(next); err == nil {
			return b.adopt(next)
		}
		if errors.Is(err, errOther) {
			discard(next)
			return false
		}
		resp = *next
	}
}

// skip reads the bytes that the caller has already read. It returns errOther if next is
// not the same answer, and another error if it broke off, too.
func (b *resumableBody) skip(next *http.Response) error {
	if next.Body == nil || !sameHeader(&b.resp, next) {
		return errOther
	}
	var same maphash.Hash
	same.SetSeed(b.seen.Seed())
	_, err := io.CopyN(&same, next.Body, b.read)
	switch {
	case errors.Is(err, io.EOF) || err == nil && same.Sum64() != b.seen.Sum64():
		return errOther
	default:
		return err
	}
}

// sameHeader reports whether two answers can be the same, judged by their headers. The length is
// compared only if both have it: a replay may have a Content-Length that a chunked answer lacks.
func sameHeader(a, b *http.Response) bool {
	if a.StatusCode/100 != b.StatusCode/100 || a.ContentLength >= 0 && b.ContentLength >= 0 && a.ContentLength != b.ContentLength {
		return false
	}
	for _, name := range []string{"Location", "Etag", "Content-Type", "Content-Encoding"} {
		if !slices.Equal(a.Header[name], b.Header[name]) {
			return false
		}
	}
	return true
}

func (b *resumableBody) adopt(next *http.Response) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = next.Body.Close()
		return false
	}
	b.resp = *next
	return true
}
