package middleware

import (
	"net/http"
	"net/url"
	"strings"
)

// maxBack is how long a path may be to be linked to.
const maxBack = 2 << 10

// wayBack returns path and query of the page that r was sent from, if it is one of this
// origin, else "/". The form of a refusal page sends no more than its origin, so it is
// never that page, whose address may answer a GET otherwise.
func wayBack(r *http.Request) string {
	from, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || from.Host == "" || from.Scheme != "http" && from.Scheme != "https" {
		return "/"
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
	case "": // an older browser; a proxy may have changed the host, and then it is another one
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
