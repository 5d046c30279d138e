package bodybuf

import (
	"io"
	"net/http"
)

// Unlimit takes back what [Limit] did, if nothing was read since: a handler
// that no guard stands before gets the server's own body.
func Unlimit(r *http.Request) {
	if b, ok := r.Body.(*body); ok && b.unread() {
		r.Body = b.src
	}
}

// Rewind lets what [Bytes] has read be read again from its first byte, by a
// reader that comes after one which has read the body, or closed it.
func Rewind(r *http.Request) {
	b, ok := r.Body.(*body)
	switch {
	case !ok, b.passed, b.pos == 0 && !b.closed.Load():
	case b.whole:
		r.Body = &body{
			src: http.NoBody, data: b.data, err: io.EOF, whole: true, limit: b.limit,
			checked: b.checked, verdict: b.verdict,
		}
	default:
		b.pos = 0
	}
}
