package bodybuf

import (
	"io"
	"net/http"
)

// Unlimit takes back a [Limit], unless the body was read from since: a handler that runs unguarded
// gets the server's own body.
func Unlimit(r *http.Request) {
	if b, ok := r.Body.(*body); ok && b.unread() {
		r.Body = b.src
	}
}

// Rewind lets the next reader read the bytes of [Bytes] again, after a reader that has read the
// body, or closed it.
func Rewind(r *http.Request) {
	b, ok := r.Body.(*body)
	switch {
	case !ok, b.passed, b.pos == 0 && !b.closed.Load():
	case b.whole:
		r.Body = &body{
			src: http.NoBody, data: b.data, err: io.EOF, whole: true, limit: b.limit,
			content: b.content, checked: b.checked, verdict: b.verdict,
		}
	default:
		b.pos = 0
	}
}
