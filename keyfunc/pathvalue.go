package keyfunc

import (
	"net/http"
	"net/url"
)

// PathValue takes the value of a wildcard of the route: PathValue("id") for
// "/orders/{id}/pay", with [http.ServeMux] and with chi.
//
// Mount the middleware on the route (mux.Handle(pattern, guard(h)),
// r.With(guard).Post(...)). Around the whole router no route is known yet, so every
// request ends as [ErrMissing].
//
// For the path "%37", chi returns "%37" and ServeMux "7". PathValue unescapes the value
// once more, so that it is "7" with both, and a client cannot avoid a lock by its
// spelling. That has two effects. A ServeMux path with "%2537" is "7" as well, so two odd
// values may share a key: that makes a lock stricter, and is wrong for distinguishing
// tenants. And a value with a "%" that is no escape ("100%") is refused with 400. So are
// control characters and values over 1 KiB.
//
// PathValue panics on an empty name.
func PathValue(name string) Func {
	named("PathValue", name)
	from := source("path value " + name)
	return func(r *http.Request) (string, error) {
		value, err := url.PathUnescape(r.PathValue(name))
		if err != nil {
			return "", from.bad(`has a "%" that is no escape; send it as "%25" or choose other values`)
		}
		return from.check(value, "mount the guard on a route that has it, not around the router")
	}
}
