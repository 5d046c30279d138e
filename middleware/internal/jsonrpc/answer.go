package jsonrpc

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
)

// Readdress returns body, the answer to a call, with id in place of the id of each response in it. It
// changes nothing else, except that the events of a stream lose their own ids: with them, a client
// would resume the stream of the first call, whose responses have the id of that call. answered is false
// for an empty body, and for a stream that ends without a response.
func Readdress(contentType string, body, id []byte) (out []byte, answered bool) {
	if media, _, _ := mime.ParseMediaType(contentType); media != "text/event-stream" {
		out, _ = message(body, id)
		return out, len(body) > 0
	}
	out = make([]byte, 0, len(body)+len(id))
	for len(body) > 0 {
		var lines []line
		for len(body) > 0 {
			var l line
			l, body = cutLine(body)
			lines = append(lines, l)
			if len(l.text) == 0 {
				break
			}
		}
		var response bool
		out, response = appendEvent(out, lines, id)
		answered = answered || response
	}
	return out, answered
}

// message returns data with id in place of the id of a response. Any other data is unchanged.
func message(data, id []byte) (out []byte, response bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return data, false
	}
	from, to := 0, 0
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return data, false
		}
		switch name {
		case "id":
			if string(value) != "null" { // of a request that could not be read
				to = int(d.InputOffset())
				from = to - len(value)
			}
		case "result", "error":
			response = true
		case "method":
			return data, false // a request or a notification of the server
		}
	}
	if !response || to == 0 {
		return data, response
	}
	return slices.Concat(data[:from], id, data[to:]), true
}

// line is a line of an event stream, and its end.
type line struct{ text, end []byte }

func cutLine(b []byte) (l line, rest []byte) {
	at := bytes.IndexAny(b, "\r\n")
	if at < 0 {
		return line{text: b}, nil
	}
	end := at + 1
	if b[at] == '\r' && end < len(b) && b[end] == '\n' {
		end++
	}
	return line{b[:at], b[at:end]}, b[end:]
}

// field returns the value of the line if it is the field name.
func (l line) field(name string) (prefix, value []byte, is bool) {
	rest, is := bytes.CutPrefix(l.text, []byte(name))
	if !is || len(rest) > 0 && rest[0] != ':' {
		return nil, nil, false
	}
	value = bytes.TrimPrefix(bytes.TrimPrefix(rest, []byte(":")), []byte(" "))
	return l.text[:len(l.text)-len(value)], value, true
}

// appendEvent appends an event. A JSON text on several lines stays on as many: no token has a line
// break.
func appendEvent(b []byte, lines []line, id []byte) (out []byte, response bool) {
	var values [][]byte
	for _, l := range lines {
		if _, value, is := l.field("data"); is {
			values = append(values, value)
		}
	}
	data, response := message(bytes.Join(values, []byte("\n")), id)
	values = bytes.Split(data, []byte("\n"))
	n := 0
	for _, l := range lines {
		if _, _, is := l.field("id"); is {
			continue
		}
		if prefix, _, is := l.field("data"); is {
			b = append(append(b, prefix...), values[n]...)
			n++
		} else {
			b = append(b, l.text...)
		}
		b = append(b, l.end...)
	}
	return b, response
}
