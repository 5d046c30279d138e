package middleware

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// addedMark precedes the name of a header whose values are to be added. No
// header's name can contain it.
const addedMark = ":"

// appendHeaders appends to a record what the handler did to the headers: those
// that it set or changed, and without values those that it removed. What outer
// middleware had set before belongs to its own request, and will be set by it
// for the next one. fields are all of after.
func appendHeaders(b []byte, before, after http.Header, fields []field) []byte {
	connection := after["Connection"]
	for _, f := range fields {
		was := before[f.name]
		switch {
		case dropped(f.name, connection) || len(was) > 0 && slices.Equal(was, f.values):
		case len(was) > 0 && len(f.values) > len(was) && slices.Equal(was, f.values[:len(was)]):
			b = appendHeader(b, addedMark+f.name, f.values[len(was):])
		default:
			b = appendHeader(b, f.name, f.values)
		}
	}
	for name := range before {
		if _, has := after[name]; !has && !dropped(name, connection) {
			b = appendHeader(b, name, nil)
		}
	}
	return b
}

// dropped reports whether a header is for the first client, or its connection,
// alone.
func dropped(name string, connection []string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch name {
	case "Set-Cookie", "Set-Cookie2", // would hand one session to whoever has the key
		"Authorization", "Www-Authenticate", "Authentication-Info",
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", // is set again from the body
		"Date", replayedHeader:
		return true
	}
	if strings.HasPrefix(name, "Proxy-") || trailing(name) {
		return true
	}
	for _, line := range connection {
		for option := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(textproto.TrimString(option), name) {
				return true
			}
		}
	}
	return false
}
