package keyfunc

import (
	"net/http"
	"net/url"
)

// Query takes a parameter of the URL's query: Query("order").
//
// A parameter that is sent twice is refused with 400, even with equal values:
// the handler may read the other one. So are a query that does not parse (a
// bad escape, a semicolon), control characters and values over 1 KiB. An
// absent or empty parameter is [ErrMissing].
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
		return from.only(values[name], "send it in the URL")
	}
}

// only takes the single value of a parameter or field.
func (s source) only(values []string, cure string) (string, error) {
	switch len(values) {
	case 0:
		return "", s.missing(cure)
	case 1:
		return s.check(values[0], cure)
	}
	return "", s.bad("is sent twice; send it once")
}
