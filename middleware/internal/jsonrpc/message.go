// Package jsonrpc reads the messages of JSON-RPC 2.0: the call of a client, its content, and the id of its response.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
)

// Call is a message of a client.
type Call struct {
	Method string // "" for an answer of the client to a request of the server
	Tool   string // the name in the params of tools/call of MCP
	ID     []byte // as it was sent; nil for a notification

	message map[string]any // of the canonical text
}

// Errors of a message that is JSON, and no call.
var (
	ErrBatch   = errors.New("a batch cannot be processed once as a whole; send each call by itself")
	ErrInvalid = errors.New("this is no request of JSON-RPC 2.0")
)

// maxID is the longest id in bytes: it is sent back with each answer.
const maxID = 1 << 10

// Read reads a message. canonical is the canonical text of data, in which no object has two members of one name.
func Read(data []byte, canonical string) (*Call, error) {
	d := json.NewDecoder(strings.NewReader(canonical))
	d.UseNumber() // an order number keeps its digits
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, batch := value.([]any); batch {
		return nil, ErrBatch
	}
	c := new(Call)
	c.message, _ = value.(map[string]any)
	var raw struct{ ID json.RawMessage }
	if json.Unmarshal(data, &raw) != nil || twins(c.message, "jsonrpc", "id", "method", "params") {
		return nil, ErrInvalid
	}
	c.ID = raw.ID
	method, named := c.message["method"]
	_, result := c.message["result"]
	_, failure := c.message["error"]
	if !named && (result || failure) {
		return c, nil
	}
	var ok bool
	switch c.Method, ok = method.(string); {
	case !ok || c.Method == "", len(c.ID) > maxID, len(c.ID) > 0 && strings.IndexByte("{[tf", c.ID[0]) >= 0:
		return nil, ErrInvalid
	}
	if c.Method == "tools/call" {
		params, _ := c.message["params"].(map[string]any)
		if twins(params, "name") {
			return nil, ErrInvalid
		}
		c.Tool, _ = params["name"].(string)
	}
	return c, nil
}

// twins reports whether a member differs from one of names in case only: some decoders take one for the other.
func twins(members map[string]any, names ...string) bool {
	for member := range members {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				return true
			}
		}
	}
	return false
}

// Path is a JSON pointer, as its tokens.
type Path []string

// PathOf returns the tokens of a valid pointer.
func PathOf(pointer string) Path {
	p := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, t := range p {
		p[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return p
}

// parent returns the object that has the last member of p, nil if there is none.
func (c *Call) parent(p Path) (object map[string]any, name string) {
	object = c.message
	for _, t := range p[:len(p)-1] {
		object, _ = object[t].(map[string]any)
	}
	return object, p[len(p)-1]
}

// Errors of the values at the paths of a key.
var (
	ErrNoKey    = errors.New("the key in the params is no string or integer of 1 to 255 bytes without control characters")
	ErrTwoPaths = errors.New("the keys of the call differ")
)

const maxKey = 255

// Key returns the value at the paths, "" if there is none.
func (c *Call) Key(paths []Path) (string, error) {
	key := ""
	for _, p := range paths {
		object, name := c.parent(p)
		value, has := object[name]
		if !has {
			continue
		}
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
		switch {
		case text == "" || len(text) > maxKey || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return "", ErrNoKey
		case key != "" && text != key:
			return "", ErrTwoPaths
		}
		key = text
	}
	return key, nil
}

// Content returns the method and the params without _meta, and without the values at the paths.
func (c *Call) Content(paths []Path) string {
	for _, p := range append([]Path{{"params", "_meta"}}, paths...) {
		object, name := c.parent(p)
		delete(object, name)
	}
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode([]any{c.message["method"], c.message["params"]}) // values of a decoder
	return text.String()
}

// Readdress returns body, the answer to a call, with id in place of the id of each response in it. The events of a
// stream lose their own ids: with them, a client would resume the stream of the first call. answered is false for an
// empty body, and for a stream that ends without a response.
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

// appendEvent appends an event. A JSON text on several lines stays on as many: no token has a line break.
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
