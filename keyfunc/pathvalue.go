package keyfunc

import (
	"net/http"
	"net/url"
)

// PathValue takes the value of a wildcard of the route: PathValue("id") for
// "/orders/{id}/pay", with [http.ServeMux] and with chi.
//
// Mount the middleware on the route (mux.Handle(pattern, guard(h)),
// r.With(guard).Post(...)). A middleware around the whole router runs before the route is known,
// so every request is [ErrMissing].
//
// For the path "%37", chi returns "%37" and ServeMux returns "7". PathValue unescapes the value
// once more, so that it is "7" with both routers, and a client cannot avoid a lock by another
// spelling. This has two consequences. A ServeMux path with "%2537" is "7" as well, so two
// unusual values may share a key: a lock is then stricter than needed, but tenants would not be
// kept apart. And a value with a "%" that does not begin an escape ("100%") is refused with 400,
// like control characters and values over 1 KiB.
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
