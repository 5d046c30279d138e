package keyfunc

import (
	"errors"
	"mime"
	"net/http"
	"net/url"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// Query takes a parameter of the URL's query: Query("order").
//
// These are refused with 400:
//
//   - a parameter that is sent twice, even with equal values: the handler may read the other one;
//   - a parameter that is also in an urlencoded form in the body of a POST, PUT or PATCH:
//     r.FormValue prefers that form;
//   - a query that does not parse (a bad escape, a semicolon), control characters, and values
//     over 1 KiB.
//
// An absent or empty parameter is [ErrMissing].
//
// An urlencoded form is read before the claim, up to the limit of the guard, or up to 1 MiB under
// a guard without a limit. A longer form is refused with 413. No other body is read, because
// r.FormValue prefers the query to a multipart form. A handler that takes the value from a JSON
// body reads another value than this function.
//
// Query panics on an empty name.
func Query(name string) Func {
	named("Query", name)
	from := source("query parameter " + name)
	return func(r *http.Request) (string, error) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", from.bad("cannot be read: the query does not parse; escape it correctly")
		}
		value, err := from.only(values[name], "send it in the URL")
		if err != nil || !urlencodedBody(r) {
			return value, err
		}
		if err := from.notInForm(r, name); err != nil {
			return "", err
		}
		return value, nil
	}
}

// notInForm refuses a parameter that is also in the form in the body. If a form does not parse,
// handlers get the part before the error. If a body was consumed, they get its rest.
func (s source) notInForm(r *http.Request, name string) error {
	data, err := s.body(r)
	if err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
		return err
	}
	if form, _ := parseForm(r, data); len(form.PostForm[name]) > 0 || inRawForm(r, data, name) {
		return s.bad("is in the form, too; send it in the URL only")
	}
	return nil
}

// urlencodedBody reports whether net/http prefers the body to the query.
func urlencodedBody(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // the kind is right even if a parameter is malformed
		return kind == "application/x-www-form-urlencoded"
	}
	return false
}

// only returns the single value of a parameter or field.
func (s source) only(values []string, cure string) (string, error) {
	switch len(values) {
	case 0:
		return "", s.missing(cure)
	case 1:
		return s.check(values[0], cure)
	}
	return "", s.bad("is sent twice; send it once")
}
