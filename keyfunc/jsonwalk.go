package keyfunc

import (
	"bytes"
	"errors"
	"strings"
)

// maxDepth bounds the recursion. No document with an identifier is that deep.
const maxDepth = 64

var (
	errNotJSON    = errors.New("cannot be read: the body is not exactly one JSON value in UTF-8; send one")
	errDuplicate  = errors.New("cannot be read: the body has an object with two members of one name, or of names that differ only in case; send one of them")
	errOtherCase  = errors.New("is spelled with other capitals; spell it as it is here")
	errTooDeep    = errors.New("cannot be read: the body is nested over 64 levels deep; send a flatter one")
	errNoWay      = errors.New("cannot be reached: a value on its way is not an object or array as it should be")
	errNotInteger = errors.New("is a number with a fraction or an exponent; write it as a plain integer")
	errNotAKey    = errors.New("is neither a string nor an integer; send one of them")
)

// document is a JSON text that checkJSON has accepted. Reading it needs no check of the grammar:
// every bracket and every string is closed.
type document []byte

// find returns the text of the value at tokens, "" if it is absent.
func (d document) find(tokens []pointerToken) (string, error) {
	i := d.space(0)
	for _, t := range tokens {
		var err error
		if i, err = d.step(i, t); i == absent || err != nil {
			return "", err
		}
	}
	return d.text(i)
}

// step returns the beginning of a part of the value at i.
func (d document) step(i int, t pointerToken) (int, error) {
	switch d[i] {
	case '{':
		return d.member(i, t)
	case '[':
		return d.element(i, t)
	default:
		return absent, errNoWay
	}
}

// text returns the text of the string or integer at i.
func (d document) text(i int) (string, error) {
	raw := string(d[i:d.end(i)])
	switch c := raw[0]; {
	case c == '"':
		return string(unquote([]byte(raw))), nil
	case c != '-' && (c < '0' || c > '9'):
		return "", errNotAKey
	case strings.ContainsAny(raw, ".eE"):
		return "", errNotInteger
	case raw == "-0":
		return "0", nil
	}
	return raw, nil
}

// absent is the index of an absent value.
const absent = -1

// member returns the index of the value of the member that t names, in the object at i. checkJSON
// has refused two names that differ only in case, so at most one member matches.
func (d document) member(i int, t pointerToken) (int, error) {
	for i = d.space(i + 1); d[i] != '}'; i = d.comma(i) {
		end := d.stringEnd(i)
		name := unquote(d[i:end])
		i = d.space(d.space(end) + 1) // after the colon
		switch {
		case string(name) == t.name:
			return i, nil
		case string(foldCase(name)) == t.folded:
			return absent, errOtherCase
		}
		i = d.end(i)
	}
	return absent, nil
}

// element returns the index of the element that t names, in the array at i.
func (d document) element(i int, t pointerToken) (int, error) {
	if t.index < 0 {
		return absent, errNoWay
	}
	i = d.space(i + 1)
	for n := 0; d[i] != ']'; n++ {
		if n == t.index {
			return i, nil
		}
		i = d.comma(d.end(i))
	}
	return absent, nil
}

// end returns the index after the value that starts at i.
func (d document) end(i int) int {
	for depth := 0; ; {
		switch d[i] {
		case '"':
			i = d.stringEnd(i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default:
			for i < len(d) && strings.IndexByte(",]} \t\r\n", d[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// space returns the first index from i on that has no white space.
func (d document) space(i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\t' || d[i] == '\r' || d[i] == '\n') {
		i++
	}
	return i
}

// comma skips the comma after a member or element, if there is one.
func (d document) comma(i int) int {
	i = d.space(i)
	if d[i] == ',' {
		i = d.space(i + 1)
	}
	return i
}

// stringEnd returns the index after the string that starts at i.
func (d document) stringEnd(i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(d[i:], '"')
		backslashes := 0
		for d[i-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}
