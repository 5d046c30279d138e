// Package jsonrpc reads the messages of JSON-RPC 2.0: which call a client makes, what of it is its
// content, and whose answer a response is.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// Read reads a message. canonical is the canonical text of data, in which no object has two members
// of one name.
func Read(data []byte, canonical string) (*Call, error) {
	d := json.NewDecoder(strings.NewReader(canonical))
	d.UseNumber() // an order number keeps its digits
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c := new(Call)
	switch v := value.(type) {
	case []any:
		return nil, ErrBatch
	case map[string]any:
		c.message = v
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil || twins(c.message, "jsonrpc", "id", "method", "params") {
		return nil, ErrInvalid
	}
	if id, has := raw["id"]; has {
		c.ID = id
	}
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

// twins reports whether a member differs from one of names in case only: some decoders take the one
// for the other.
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

// Content returns what two calls of one key must have in common: the method and the params without
// _meta, and without the values at the paths.
func (c *Call) Content(paths []Path) string {
	for _, p := range append([]Path{{"params", "_meta"}}, paths...) {
		object, name := c.parent(p)
		delete(object, name)
	}
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode([]any{c.message["method"], c.message["params"]}) // values of a decoder
	return text.String()
}
