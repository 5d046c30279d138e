package keyfunc

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// formMemory is the memory that many small parts of a form need in addition to their bytes. With
// this and the length of the body as its limit, ReadForm keeps the whole form in memory.
const formMemory = 32 << 20

// Form takes a field of a form in the request's body: Form("once"). The body is
// application/x-www-form-urlencoded or multipart/form-data.
//
// A body of another type, and an empty one, has no fields: [ErrMissing], like an absent
// or empty field. These are refused with 400:
//
//   - a field that is sent twice, or as a file;
//   - a field that the query has, too: r.FormValue prefers the query to a multipart form;
//   - a field of a compressed form that its compressed bytes have, too, where a handler that does not
//     decompress would find it;
//   - a form that does not parse;
//   - control characters (line breaks, too) and values over 1 KiB.
//
// A body over the limit of the guard, or over 1 MiB under a guard without a limit, is
// refused with 413.
//
// The handler gets the body as the client sent it, and r.Form, r.PostForm and
// r.MultipartForm untouched. If code before the middleware has already parsed the form, its result
// is used. If such code has read the body, or a part of it, in another way, and not put it back, the
// request is answered with 500.
//
// Form panics on an empty field.
func Form(field string) Func {
	named("Form", field)
	from := source("form field " + field)
	return func(r *http.Request) (string, error) {
		data, err := from.body(r)
		if err != nil {
			return "", err
		}
		form, err := parseForm(r, data)
		if err != nil {
			return "", from.bad("cannot be read: the form does not parse; encode it correctly")
		}
		values := form.PostForm[field]
		if form.MultipartForm != nil && len(form.MultipartForm.File[field]) > 0 {
			return "", from.bad("is sent as a file; send it as a value")
		}
		if inRawForm(r, data, field) {
			return "", from.bad("is in the compressed bytes, too; send it in the form only")
		}
		value, err := from.only(values, "send it in the body, as a form")
		query, _ := url.ParseQuery(r.URL.RawQuery) // after an error, handlers get the part that did parse
		if err == nil && len(query[field]) > 0 {
			return "", from.bad("is in the query, too; send it in the body only")
		}
		return value, err
	}
}

// inRawForm reports whether the bytes of a compressed form are a form themselves, and have field: gzip
// has room for any text in its header. content is the decompressed form.
func inRawForm(r *http.Request, content []byte, field string) bool {
	raw, err := bodybuf.Bytes(r, maxBody)
	if err != nil || bytes.Equal(raw, content) || bodybuf.FormParsed(r) {
		return false
	}
	form, _ := parseForm(r, raw) // after an error, handlers get the part that did parse
	return len(form.PostForm[field]) > 0 || form.MultipartForm != nil && len(form.MultipartForm.File[field]) > 0
}

// parseForm parses data as net/http will parse the body of r for the handler, and returns a
// separate request with the form: r does not change. After an error, that request has the
// fields that were parsed before the error.
func parseForm(r *http.Request, data []byte) (*http.Request, error) {
	form := &http.Request{
		Method: r.Method,
		URL:    &url.URL{},
		Header: r.Header,
		// The guard has limited the body. Without this, ParseForm has its own limit.
		Body: http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(data)), int64(len(data))),
		// Set if other code has parsed the form: then ParseForm does not parse it again.
		PostForm: maps.Clone(r.PostForm),
	}
	if bodybuf.FormParsed(r) {
		form.MultipartForm = r.MultipartForm
	}
	if err := form.ParseForm(); err != nil {
		return form, err
	}
	if err := form.ParseMultipartForm(formMemory + int64(len(data))); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return form, err
	}
	return form, nil
}
