package refusal

import (
	"net/http"
	"net/url"
	"strings"
)

// maxBack is the longest path that a page links to.
const maxBack = 2 << 10

// WayBack returns path and query of the page that sent r, if the page has the origin of r, and
// otherwise "/". It never returns the address of a refusal page, because a GET of that address may
// get another answer: the form of such a page sends only its origin.
func WayBack(r *http.Request) string {
	from, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || from.Host == "" || from.Scheme != "http" && from.Scheme != "https" {
		return "/"
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
	case "": // an older browser; behind a proxy that changes the host, the hosts differ
		// The ports are compared as they are: browsers omit a default one in both, and behind a
		// proxy that ends TLS, the scheme of r is not known.
		if !strings.EqualFold(from.Host, r.Host) {
			return "/"
		}
	default:
		return "/"
	}
	back := (&url.URL{Path: from.Path, RawPath: from.RawPath, RawQuery: from.RawQuery, ForceQuery: from.ForceQuery}).RequestURI()
	if len(back) > maxBack || !strings.HasPrefix(back, "/") || strings.HasPrefix(back, "//") { // "//" begins a host
		return "/"
	}
	return back
}
