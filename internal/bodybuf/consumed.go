package bodybuf

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// ErrConsumed is matched by the error of [Bytes] for a body that was read
// before, by something that has neither put it back nor left a parsed form.
var ErrConsumed = errors.New("the request body was read before, and is gone")

// FormParsed reports whether something has read a form out of the body of r. An
// empty r.PostForm says nothing: ParseForm leaves it for a body of any type.
func FormParsed(r *http.Request) bool {
	return len(r.PostForm) > 0 || MultipartParsed(r)
}

// MultipartParsed is FormParsed for a multipart form, which may be one without
// parts. MultipartReader leaves a form too, to mark a body that it has given away:
// always the same one, and no r.Form, which distinguishes its mark from a form even
// in a clone of the request.
func MultipartParsed(r *http.Request) bool {
	form := r.MultipartForm
	return form != nil && (len(form.Value)+len(form.File) > 0 || form != givenAway && r.Form != nil)
}

var givenAway = func() *multipart.Form {
	r := &http.Request{Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, Body: http.NoBody}
	_, _ = r.MultipartReader() // there is nothing to read
	return r.MultipartForm
}()

// consumed is the error of a body of which left is left, nil if there has never
// been more.
//
// It says so only if nothing is left, or white space: a decoder stops behind the
// value that it has read, and where that is in what it was given at a time
// decides about the line end. Fewer bytes than the announced ones alone are no
// sign: what decompresses or rewrites a body leaves the Content-Length of the
// client. And what is left then is what the handler gets, and works with, so it
// distinguishes requests. A body that becomes empty on its way, like a compressed
// nothing, cannot be distinguished from one that was read, and has to be announced
// as empty by what does that.
//
// A chunked body announces no length. It is taken for one that was read only if
// its type says that it was something: there is no JSON, no XML and no multipart
// body of white space.
func consumed(r *http.Request, left []byte) error {
	switch {
	case len(bytes.TrimLeft(left, " \t\r\n")) > 0:
		return nil
	case r.ContentLength > int64(len(left)), r.ContentLength < 0 && neverBlank(r.Header.Get("Content-Type")):
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

func neverBlank(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType) // the kind is there if a parameter is malformed, too
	switch kind {
	case "application/json", "application/xml", "text/xml":
		return true
	}
	return strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || strings.HasPrefix(kind, "multipart/")
}
