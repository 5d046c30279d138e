package refusal

import (
	"net/http"
	"strings"
)

// PrefersPage reports whether the Accept header of r prefers text/html to
// application/problem+json and application/json (RFC 9110, section 12.5.1). At equal
// weights the more specific range decides: a client that names text/html, and JSON only by
// */*, prefers the page. Without a preference it gets JSON.
func PrefersPage(r *http.Request) bool {
	if r == nil {
		return false
	}
	accept := r.Header["Accept"]
	if len(accept) == 0 || len(accept) == 1 && accept[0] == "*/*" {
		return false
	}
	var html, problem, plain match
	for _, line := range accept {
		for line != "" {
			var element string
			element, line = cutQuoted(line, ',')
			media, q, forHTML, ok := parseRange(element)
			if !ok {
				continue
			}
			if forHTML {
				html.meet(media, "text", "html", q)
			}
			problem.meet(media, "application", "problem+json", q)
			plain.meet(media, "application", "json", q)
		}
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
	weight   int // in thousandths
}

func (m match) over(n match) bool {
	return m.weight > n.weight || m.weight == n.weight && m.specific > n.specific
}

// meet notes the range media of weight q if it contains kind/sub. Between two equally
// specific ranges, the higher weight counts.
func (m *match) meet(media, kind, sub string, q int) {
	rangeKind, rangeSub, _ := strings.Cut(media, "/")
	found := match{weight: q}
	switch {
	case strings.EqualFold(rangeKind, kind) && strings.EqualFold(rangeSub, sub):
		found.specific = 3
	case strings.EqualFold(rangeKind, kind) && rangeSub == "*":
		found.specific = 2
	case media == "*/*":
		found.specific = 1
	default:
		return
	}
	if found.specific > m.specific || found.specific == m.specific && q > m.weight {
		*m = found
	}
}

// parseRange parses one element of an Accept header. forHTML is false if the element has a parameter
// that the page lacks: the page has only its charset. Parameters of JSON are ignored. ok is false
// for a malformed weight.
func parseRange(element string) (media string, q int, forHTML, ok bool) {
	media, rest := cutQuoted(element, ';')
	media = strings.TrimSpace(media)
	q, forHTML = 1000, true
	for rest != "" {
		var parameter string
		parameter, rest = cutQuoted(rest, ';')
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		switch {
		case name == "" && value == "":
		case strings.EqualFold(name, "q"):
			if q, ok = parseWeight(value); !ok {
				return "", 0, false, false
			}
			return media, q, forHTML, true // the parameters behind the weight are not of the type
		case strings.EqualFold(name, "charset") && strings.EqualFold(strings.Trim(value, `"`), "utf-8"):
		default:
			forHTML = false
		}
	}
	return media, q, forHTML, media != ""
}

// parseWeight returns a weight of RFC 9110, section 12.4.2, in thousandths.
func parseWeight(s string) (thousandths int, ok bool) {
	whole, fraction, dot := strings.Cut(s, ".")
	if whole != "0" && whole != "1" || len(fraction) > 3 {
		return 0, false
	}
	thousandths = int(whole[0]-'0') * 1000
	if !dot {
		return thousandths, true
	}
	unit := 100
	for i := range len(fraction) {
		if fraction[i] < '0' || fraction[i] > '9' {
			return 0, false
		}
		thousandths += int(fraction[i]-'0') * unit
		unit /= 10
	}
	return thousandths, thousandths <= 1000
}

// cutQuoted is strings.Cut at the first sep outside of quoted strings.
func cutQuoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
