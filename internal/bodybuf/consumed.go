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

// ErrConsumed is matched by the error of [Bytes] for a body that other code has read, or a part of
// it, and has neither put back nor parsed as a form.
var ErrConsumed = errors.New("the request body was read before, and is gone")

// FormParsed reports whether other code has parsed the body of r as a form. An empty r.PostForm
// says nothing: ParseForm leaves it for a body of any type. A multipart form may have no parts.
// MultipartReader marks a body that it has given away by a form, too: always the same form, and
// without r.Form. This distinguishes the mark from a form, even in a clone of the request.
func FormParsed(r *http.Request) bool {
	form := r.MultipartForm
	return len(r.PostForm) > 0 || form != nil && (len(form.Value)+len(form.File) > 0 || form != givenAway && r.Form != nil)
}

var givenAway = func() *multipart.Form {
	r := &http.Request{Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, Body: http.NoBody}
	_, _ = r.MultipartReader() // there is nothing to read
	return r.MultipartForm
}()

// consumed returns the error of a body that ended after left, nil if left may be the whole body.
//
// Two requests may end alike, so a body that is shorter than its Content-Length is consumed.
// Middleware that makes a body shorter has to set r.ContentLength. Middleware that decompresses
// often does not: it removes the header, or leaves the Content-Encoding. Its bodies, and those of a
// request without the header, count as consumed only if left is empty or white space: a decoder
// stops after its value, and may leave a line end.
//
// A chunked body has no Content-Length. It counts as consumed only if its type excludes white
// space: JSON, XML and multipart bodies are never blank.
func consumed(r *http.Request, left []byte) error {
	blank := len(bytes.TrimLeft(left, " \t\r\n")) == 0
	switch {
	case r.ContentLength > int64(len(left)) && (blank || lengthKnown(r.Header)),
		r.ContentLength < 0 && blank && neverBlank(r.Header.Get("Content-Type")):
		return lost(r, nil)
	}
	return nil
}

// lengthKnown reports whether the Content-Length is the length of the body that handlers get.
func lengthKnown(h http.Header) bool {
	switch strings.ToLower(h.Get("Content-Encoding")) {
	case "", "identity", "utf-8": // which some clients send, and nothing decompresses
		return len(h["Content-Length"]) > 0
	}
	return false
}

// lost returns the error of a consumed body, nil if it was parsed as a form.
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
	kind, _, _ := mime.ParseMediaType(contentType) // the kind is right even if a parameter is malformed
	switch kind {
	case "application/json", "application/xml", "text/xml":
		return true
	}
	return strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || strings.HasPrefix(kind, "multipart/")
}
