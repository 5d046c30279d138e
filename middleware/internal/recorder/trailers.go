package recorder

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// trailing reports whether the prefix of name makes the header a trailer.
func trailing(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

// announces reports whether the handler announces or has set a trailer. Trailers that outer
// middleware has announced do not count: outer middleware sends them with the repeat's answer, too.
func announces(before http.Header, name string, values []string) bool {
	switch {
	case trailing(name):
		return !slices.Equal(before[name], values)
	case name != "Trailer":
		return false
	}
	for announced := range elements(values) {
		if !listHas(before[name], announced) {
			return true
		}
	}
	return false
}

// sendsTrailer reports whether h has a new trailer since WriteHeader, or a changed header that was
// announced as one.
func (b *buffers) sendsTrailer(h http.Header) bool {
	for name, values := range h {
		if (trailing(name) || listHas(b.values("Trailer"), name)) && !slices.Equal(b.values(name), values) {
			return true
		}
	}
	return false
}

// listHas reports whether the list header values has the element name.
func listHas(values []string, name string) bool {
	for e := range elements(values) {
		if strings.EqualFold(e, name) {
			return true
		}
	}
	return false
}

// elements yields the elements of a list header.
func elements(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range values {
			for e := range strings.SplitSeq(line, ",") {
				if e = textproto.TrimString(e); e != "" && !yield(e) {
					return
				}
			}
		}
	}
}
