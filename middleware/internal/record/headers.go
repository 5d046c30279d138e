package record

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// Names of headers of guards.
const (
	ReplayedHeader = "Idempotent-Replayed"      // marks an answer that was given before
	ProblemHeader  = "Latch-Problem"            // marks a refusal by a guard, with its kind
	LifetimeHeader = "Idempotency-Key-Lifetime" // for how long the key of an answer is remembered
)

// buffers hold an answer while its handler runs. Later answers of the guard reuse them: the Locker
// has its own copy of the record, and no handler has access to them.
type buffers struct {
	record   []byte   // without the headers
	headers  []byte   // of the record
	fields   []field  // all headers, as they were at WriteHeader
	texts    []string // the values of fields, copied so that the handler cannot change them
	trailers bool     // the handler had set trailers among the fields, or announced trailers
}

// field is a header.
type field struct {
	name   string
	values []string
}

// values returns the values of a header at WriteHeader, nil if there were none.
func (b *buffers) values(name string) []string {
	for _, was := range b.fields {
		if strings.EqualFold(was.name, name) {
			return was.values
		}
	}
	return nil
}

// begin fixes the status and the headers: as in net/http, later changes by the handler have no effect, except for
// trailers. It encodes for the record headers that describe the body, headers that the settings keep, and headers
// that the handler has set, changed or removed. A removed header has no values. Other headers belong to outer
// middleware.
func (a *Answer) begin(status int) {
	a.Status, a.declared = status, -1
	if length := a.header["Content-Length"]; len(length) > 0 {
		if n, err := strconv.ParseInt(length[0], 10, 64); err == nil && n >= 0 { // as net/http
			a.declared = n
		}
	}
	b, connection := a.buffers, a.header["Connection"]
	for name, values := range a.header {
		first := len(b.texts)
		b.texts = append(b.texts, values...)
		values = slices.Clip(b.texts[first:])
		b.fields = append(b.fields, field{name, values})
		was, canonical := a.before[name], textproto.CanonicalMIMEHeaderKey(name)
		// Trailers that outer middleware has announced do not count, unless the handler changes the list: outer
		// middleware sends them with the repeat's answer, too.
		b.trailers = b.trailers || (trailing(name) || name == "Trailer") && !slices.Equal(was, values)
		switch more, extended := addedValues(was, values); {
		case NeverKept(canonical), listHas(connection, name):
			continue
		case describesBody(canonical), slices.Contains(a.settings.Keep, canonical):
		case len(was) > 0 && slices.Equal(was, values):
			continue
		case extended && (len(was) > 0 || slices.Contains(appendedLists, name)):
			name, values = AddedMark+name, more
		}
		b.headers = AppendHeader(b.headers, name, values)
	}
	for name := range a.before {
		if _, has := a.header[name]; !has && !NeverKept(textproto.CanonicalMIMEHeaderKey(name)) && !listHas(connection, name) {
			b.headers = AppendHeader(b.headers, name, nil)
		}
	}
}

// restore sets the headers to their state at WriteHeader, and looks for trailers, which are sent and not recorded. If
// sniff is set, because the body ends here or is flushed, it adds the Content-Type that net/http would add.
func (a *Answer) restore(sniff bool) {
	h, b := a.header, a.buffers
	changed := len(h) != len(b.fields)
	for _, was := range b.fields {
		is, has := h[was.name]
		changed = changed || !has || !slices.Equal(is, was.values)
	}
	a.trails = b.trailers || changed && a.sendsTrailer()
	if changed {
		if a.trails {
			a.withTrailers = maps.Clone(h)
		}
		clear(h)
		for _, was := range b.fields {
			h[was.name] = slices.Clone(was.values) // the buffers go to other answers
		}
	}
	if _, has := h["Content-Type"]; !sniff || has || len(a.body()) == 0 || h.Get("Content-Encoding") != "" || h.Get("Transfer-Encoding") != "" {
		return
	}
	kind := []string{http.DetectContentType(a.body())}
	h["Content-Type"] = kind
	b.headers = AppendHeader(b.headers, "Content-Type", kind)
}

// sendsTrailer reports whether there is a new trailer since WriteHeader, or a changed header that was
// announced as one.
func (a *Answer) sendsTrailer() bool {
	b := a.buffers
	for name, values := range a.header {
		if (trailing(name) || listHas(b.values("Trailer"), name)) && !slices.Equal(b.values(name), values) {
			return true
		}
	}
	return false
}

// trailing reports whether the prefix of name makes the header a trailer.
func trailing(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

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

// addedValues returns the values of now that are not in was. extended reports that now still has all of was: in the
// same order, or joined at the beginning of its first value.
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

// describesBody reports whether the header with this canonical name describes the body of an answer, or restricts its
// use: a replay has the body of the first answer, so it needs its type, language and nonces. Content-Encoding does
// not count: outer middleware compresses every answer of the guard for the current client.
func describesBody(name string) bool {
	return strings.HasPrefix(name, "Content-") && name != "Content-Encoding" || name == "Etag" || name == "Last-Modified"
}

// appendedLists are lists to which each middleware adds its own element. If one was empty before, Set and Add by a handler
// cannot be distinguished, and outer middleware may add an element for the repeat. In these lists, an additional element
// does no harm, but a missing one does.
var appendedLists = []string{"Vary", "Link", "Server-Timing", "Access-Control-Expose-Headers"}

// NeverKept reports whether no record has the header with this canonical name, because it is only for the first
// client or its connection, or is never sent: net/http does not send a header whose name is not a token.
func NeverKept(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Mcp-Session-Id", // would give one session to every client with the key
		"Authorization", "Www-Authenticate", "Authentication-Info",
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", // set again from the body
		"Date", ReplayedHeader, LifetimeHeader:
		return true
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) < 0:
			return true
		}
	}
	return name == "" || strings.HasPrefix(name, "Proxy-")
}
