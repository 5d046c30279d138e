// Package refusal reads in a request how its refusal is shown: as a page or not, with which link and fields.
package refusal

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// PrefersPage reports whether the Accept header of r prefers text/html to
// application/problem+json and application/json (RFC 9110, section 12.5.1). At equal
// weights the more specific range decides: a client that names text/html, and JSON only by
// */*, prefers the page. Without a preference it gets JSON. A comma in a quoted parameter ends an
// element too, and a parameter behind a weight counts: no client sends either.
func PrefersPage(r *http.Request) bool {
	if r == nil {
		return false
	}
	accept := r.Header["Accept"]
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "*/*" {
		return false
	}
	var html, problem, plain match
	for element := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, parameters, err := mime.ParseMediaType(element)
		weight := 1.0
		if q, weighed := parameters["q"]; err == nil && weighed {
			weight, err = strconv.ParseFloat(q, 64)
			delete(parameters, "q")
			if len(q) > len("0.123") || strings.Trim(q, "0123456789.") != "" || weight > 1 {
				continue
			}
		}
		if err != nil {
			continue
		}
		// The page has no parameter but its charset. Parameters of JSON are ignored.
		if charset, has := parameters["charset"]; len(parameters) == 0 || has && len(parameters) == 1 && strings.EqualFold(charset, "utf-8") {
			html.meet(media, "text", "html", weight)
		}
		problem.meet(media, "application", "problem+json", weight)
		plain.meet(media, "application", "json", weight)
	}
	json := problem
	if plain.over(json) {
		json = plain
	}
	return html.weight > 0 && html.over(json)
}

// match is the most specific range so far that contains a media type.
type match struct {
	specific int // 0: none, 1: */*, 2: type/*, 3: type/subtype
	weight   float64
}

func (m match) over(n match) bool {
	return m.weight > n.weight || m.weight == n.weight && m.specific > n.specific
}

// meet notes the range media, in small letters, if it contains kind/sub. Between two equally specific
// ranges, the higher weight counts.
func (m *match) meet(media, kind, sub string, weight float64) {
	found := match{weight: weight}
	switch media {
	case kind + "/" + sub:
		found.specific = 3
	case kind + "/*":
		found.specific = 2
	case "*/*":
		found.specific = 1
	default:
		return
	}
	if found.specific > m.specific || found.specific == m.specific && weight > m.weight {
		*m = found
	}
}
