package middleware

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// appendHeaders appends to a record what belongs to the answer: the headers that
// describe its body, those of keep, those that the handler set or changed, and
// without values those that it removed. What else outer middleware had set before
// belongs to its own request, and will be set by it for the next one. fields are
// all of after.
func appendHeaders(b []byte, before, after http.Header, fields []field, keep headerNames, http2 bool) []byte {
	connection := after["Connection"]
	for _, f := range fields {
		was := before[f.name]
		switch more, extended := beyond(was, f.values); {
		case dropped(f.name, connection):
		case describesBody(f.name), keep.has(f.name):
			b = record.AppendHeader(b, f.name, sentValues(f.values, http2))
		case len(was) > 0 && slices.Equal(was, f.values):
		case extended && (len(was) > 0 || collects(f.name)):
			b = record.AppendHeader(b, record.AddedMark+f.name, sentValues(more, http2))
		default:
			b = record.AppendHeader(b, f.name, sentValues(f.values, http2))
		}
	}
	for name := range before {
		if _, has := after[name]; !has && !dropped(name, connection) {
			b = record.AppendHeader(b, name, nil)
		}
	}
	return b
}

// beyond returns what now has in addition to was: extended says that all of was
// is still there, in its order, or at the beginning of one text.
func beyond(was, now []string) (more []string, extended bool) {
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

// describesBody reports whether a header says how to read the body, or what it may
// do, whichever code has set it: the body of a replay is that of the first answer,
// and is wrong under the type, the language, or the nonces of another one. A coding
// that middleware outside has set does not: it compresses what the guard sends, for the
// client of the moment.
func describesBody(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return strings.HasPrefix(name, "Content-") && name != "Content-Encoding" || name == "Etag" || name == "Last-Modified"
}

// headerNames are those of [WithKeepHeaders], in canonical form.
type headerNames []string

func (names headerNames) has(name string) bool {
	return len(names) > 0 && slices.Contains(names, textproto.CanonicalMIMEHeaderKey(name))
}

// collects reports whether a header is a list that every middleware adds its own
// to. Set and Add of a handler look alike if nothing was there before, and the
// repeat may pass middleware that has something to say: to a list of these, one
// value too many does no harm, and one too few does.
func collects(name string) bool {
	switch name {
	case "Vary", "Link", "Server-Timing", "Access-Control-Expose-Headers":
		return true
	}
	return false
}

// dropped reports whether a header is for the first client, or its connection,
// alone, or for none: net/http does not send names that are no tokens.
func dropped(name string, connection []string) bool {
	return neverKept(textproto.CanonicalMIMEHeaderKey(name)) || lists(connection, name)
}

// neverKept reports whether no record has the header, whose name is canonical.
func neverKept(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", // would hand one session to every client that has the key
		"Authorization", "Www-Authenticate", "Authentication-Info",
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", // is set again from the body
		"Date", replayedHeader:
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

// sentValues are values as net/http sends them. They are the same slice if it
// changes none.
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

// sentValue: HTTP/1 repairs what HTTP/2 leaves out.
func sentValue(v string, http2 bool) (is string, sent bool) {
	if http2 {
		return v, !strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
	}
	return textproto.TrimString(newlineToSpace.Replace(v)), true
}
