package recorder

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// takeHeaders copies now, the headers of an answer that begins, because the handler can change them in
// place. It encodes for the record headers that describe the body, headers in keep, and headers that
// the handler has set, changed or removed. A removed header has no values. Other headers of before
// belong to outer middleware, which sets them anew for each request.
func (b *buffers) takeHeaders(before, now http.Header, keep []string) {
	connection := now["Connection"]
	for name, values := range now {
		first := len(b.texts)
		b.texts = append(b.texts, values...)
		values = slices.Clip(b.texts[first:])
		b.fields = append(b.fields, field{name, values})
		was, canonical := before[name], textproto.CanonicalMIMEHeaderKey(name)
		// Trailers that outer middleware has announced do not count, unless the handler changes the list: outer
		// middleware sends them with the repeat's answer, too.
		b.trailers = b.trailers || (trailing(name) || name == "Trailer") && !slices.Equal(was, values)
		switch more, extended := addedValues(was, values); {
		case NeverKept(canonical), len(connection) > 0 && listHas(connection, name):
			continue
		case describesBody(canonical), slices.Contains(keep, canonical):
		case len(was) > 0 && slices.Equal(was, values):
			continue
		case extended && (len(was) > 0 || isAppendedList(name)):
			name, values = record.AddedMark+name, more
		}
		b.headers = record.AppendHeader(b.headers, name, values)
	}
	for name := range before {
		if _, has := now[name]; !has && !NeverKept(textproto.CanonicalMIMEHeaderKey(name)) && !listHas(connection, name) {
			b.headers = record.AppendHeader(b.headers, name, nil)
		}
	}
}

// addedValues returns the values of now that are not in was. extended reports that now still has
// all of was: in the same order, or joined at the beginning of its first value.
func addedValues(was, now []string) (more []string, extended bool) {
	if len(was) == 0 {
		return now, true
	}
	left := was
	for _, v := range now {
		if len(left) > 0 && v == left[0] {
			left = left[1:]
		} else {
			more = append(more, v)
		}
	}
	if len(left) == 0 {
		return more, true
	}
	if len(now) == 0 {
		return nil, false
	}
	rest, joined := strings.CutPrefix(now[0], strings.Join(was, ", ")+",")
	return append([]string{strings.TrimSpace(rest)}, now[1:]...), joined
}

// describesBody reports whether the header with this canonical name describes the body of an answer, or
// restricts its use, whichever code has set it. A replay has the body of the first answer, so it needs its
// type, language and nonces. Content-Encoding does not count: outer middleware compresses every answer of
// the guard for the current client.
func describesBody(name string) bool {
	return strings.HasPrefix(name, "Content-") && name != "Content-Encoding" || name == "Etag" || name == "Last-Modified"
}

// isAppendedList reports whether each middleware adds its own element to the header, a list. If the
// header was empty before, Set and Add by a handler cannot be distinguished, and outer middleware
// may add an element for the repeat. In these lists, an additional element does no harm, but a
// missing one does.
func isAppendedList(name string) bool {
	switch name {
	case "Vary", "Link", "Server-Timing", "Access-Control-Expose-Headers":
		return true
	}
	return false
}

// NeverKept reports whether no record has the header with this canonical name, because it is only for the
// first client or its connection, or is never sent: net/http does not send a header whose name is not a
// token. It sends each value to the repeat as it would to the first client.
func NeverKept(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Mcp-Session-Id", // would give one session to every client with the key
		"Authorization", "Www-Authenticate", "Authentication-Info",
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", // set again from the body
		"Date", ReplayedHeader, LifetimeHeader:
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || !isToken(name)
}

func isToken(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) < 0:
			return false
		}
	}
	return name != ""
}

// trailing reports whether the prefix of name makes the header a trailer.
func trailing(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

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
	for _, line := range values {
		for e := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(textproto.TrimString(e), name) {
				return true
			}
		}
	}
	return false
}
