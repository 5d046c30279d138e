package recorder

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// appendHeaders appends the headers of an answer to a record: headers that describe its body,
// headers in keep, and headers that the handler has set, changed or removed. A removed header has
// no values. Other headers of before belong to outer middleware, which sets them anew for each
// request. fields has all headers of after.
func appendHeaders(b []byte, before, after http.Header, fields []field, keep HeaderNames, http2 bool) []byte {
	connection := after["Connection"]
	for _, f := range fields {
		was := before[f.name]
		switch more, extended := addedValues(was, f.values); {
		case neverRecorded(f.name, connection):
		case describesBody(f.name), keep.has(f.name):
			b = record.AppendHeader(b, f.name, sentValues(f.values, http2))
		case len(was) > 0 && slices.Equal(was, f.values):
		case extended && (len(was) > 0 || isAppendedList(f.name)):
			b = record.AppendHeader(b, record.AddedMark+f.name, sentValues(more, http2))
		default:
			b = record.AppendHeader(b, f.name, sentValues(f.values, http2))
		}
	}
	for name := range before {
		if _, has := after[name]; !has && !neverRecorded(name, connection) {
			b = record.AppendHeader(b, name, nil)
		}
	}
	return b
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

// describesBody reports whether a header describes the body of an answer, or restricts its use,
// whichever code has set it. A replay has the body of the first answer, so it needs the type, the
// language and the nonces of the first answer. Content-Encoding does not count: outer middleware
// compresses every answer of the guard for the current client.
func describesBody(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return strings.HasPrefix(name, "Content-") && name != "Content-Encoding" || name == "Etag" || name == "Last-Modified"
}

// HeaderNames are canonical names of headers.
type HeaderNames []string

func (names HeaderNames) has(name string) bool {
	return len(names) > 0 && slices.Contains(names, textproto.CanonicalMIMEHeaderKey(name))
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

// neverRecorded reports whether a header is only for the first client or its connection, or is
// never sent: net/http does not send a header whose name is not a token.
func neverRecorded(name string, connection []string) bool {
	return NeverKept(textproto.CanonicalMIMEHeaderKey(name)) || len(connection) > 0 && listHas(connection, name)
}

// NeverKept reports whether no record has the header with this canonical name.
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

// sentValues returns values as net/http sends them: the same slice if it changes none.
func sentValues(values []string, http2 bool) []string {
	for i, v := range values {
		if is, sent := sentValue(v, http2); !sent || is != v {
			changed := slices.Clone(values[:i])
			for _, v := range values[i:] {
				if is, sent := sentValue(v, http2); sent {
					changed = append(changed, is)
				}
			}
			return changed
		}
	}
	return values
}

var newlineToSpace = strings.NewReplacer("\n", " ", "\r", " ")

// sentValue returns v as net/http sends it. HTTP/1 replaces control characters, and HTTP/2 omits
// the value.
func sentValue(v string, http2 bool) (is string, sent bool) {
	if http2 {
		return v, !strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
	}
	return textproto.TrimString(newlineToSpace.Replace(v)), true
}
