package bodybuf

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// ErrConsumed is matched by the error of [Bytes] for a body that was read
// before, by something that has neither put it back nor left a parsed form.
var ErrConsumed = errors.New("the request body was read before, and is gone")

// FormParsed reports whether something has read a form out of the body of r. An
// empty one says nothing: ParseForm leaves it for a body of any type, and
// MultipartReader to mark a body that it has given away.
func FormParsed(r *http.Request) bool {
	return len(r.PostForm) > 0 || MultipartParsed(r)
}

// MultipartParsed is FormParsed for a multipart form.
func MultipartParsed(r *http.Request) bool {
	return r.MultipartForm != nil && len(r.MultipartForm.Value)+len(r.MultipartForm.File) > 0
}

// consumed is the error of a body that is empty, nil if it has always been.
//
// It says so only if nothing at all is left. Fewer bytes than the announced ones
// are no sign: what decompresses or rewrites a body leaves the Content-Length
// of the client. And what is left then is what the handler gets, and works
// with, so it tells requests apart. A body that becomes empty on its way, like
// a compressed nothing, cannot be told from one that was read, and has to be
// announced as empty by what does that.
//
// A chunked body announces no length. If it is empty, it is taken for one that
// was read only if its type says that it was something: there is no JSON and no
// multipart body without a byte.
func consumed(r *http.Request) error {
	if r.ContentLength > 0 || r.ContentLength < 0 && neverEmpty(r.Header.Get("Content-Type")) {
		return lost(r, nil)
	}
	return nil
}

// lost is the error of a body that was read, nil if it was a form.
func lost(r *http.Request, err error) error {
	switch {
	case FormParsed(r):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrConsumed, err)
	}
	return ErrConsumed
}

func neverEmpty(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType) // the kind is there if a parameter is malformed, too
	return kind == "application/json" || strings.HasSuffix(kind, "+json") || strings.HasPrefix(kind, "multipart/")
}
