package middleware

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// trailing reports whether name marks a header that is sent behind the body.
func trailing(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

// announces reports whether the handler announces or has set a trailer. Those
// that outer middleware has announced before are its own: it will send them
// with the repeat's answer too.
func announces(before http.Header, name string, values []string) bool {
	switch {
	case trailing(name):
		return !slices.Equal(before[name], values)
	case name != "Trailer":
		return false
	}
	for announced := range elements(values) {
		if !lists(before[name], announced) {
			return true
		}
	}
	return false
}

// sendsTrailer reports whether h has a trailer that was not there at WriteHeader,
// or a header that was announced as one and has changed since.
func (r *room) sendsTrailer(h http.Header) bool {
	for name, values := range h {
		if (trailing(name) || lists(r.values("Trailer"), name)) && !slices.Equal(r.values(name), values) {
			return true
		}
	}
	return false
}

func lists(values []string, name string) bool {
	for e := range elements(values) {
		if strings.EqualFold(e, name) {
			return true
		}
	}
	return false
}

// elements are those of a list header.
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
