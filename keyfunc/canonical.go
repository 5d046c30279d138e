package keyfunc

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errSameName  = errors.New("cannot be compared: it has an object with two members of one name; send one of them")
	errSurrogate = errors.New("cannot be compared: it has half of a surrogate pair; send characters in UTF-8")
)

// canonical returns the one spelling of a JSON text.
func canonical(data []byte) ([]byte, error) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, errNotJSON
	}
	c := canonicalizer{document: data, out: make([]byte, 0, len(data))}
	if _, err := c.value(c.space(0), 0); err != nil {
		return nil, err
	}
	return c.out, nil
}

// canonicalizer writes a document, which json.Valid has accepted, in its one spelling.
type canonicalizer struct {
	document
	out     []byte
	scratch []byte // for members that come in another order
}

// value writes the value at i, and returns its end.
func (c *canonicalizer) value(i, depth int) (end int, err error) {
	switch b := c.document[i]; {
	case (b == '{' || b == '[') && depth == maxDepth:
		return 0, errTooDeep
	case b == '{':
		return c.object(i, depth+1)
	case b == '[':
		return c.array(i, depth+1)
	case b == '"':
		end = c.stringEnd(i)
		text, err := decode(c.document[i:end])
		if err != nil {
			return 0, err
		}
		c.out = appendString(c.out, text)
	case b == '-' || '0' <= b && b <= '9':
		end = c.end(i)
		c.out, err = appendNumber(c.out, string(c.document[i:end]))
	default: // null, true, false
		end = c.end(i)
		c.out = append(c.out, c.document[i:end]...)
	}
	return end, err
}

// member is a member of an object that was written: text is name, colon and value.
type member struct {
	name     []byte
	from, to int // of its text in out
}

// object writes the members in the order of the document, and then sorts what it has written, so
// that it visits each value only once.
func (c *canonicalizer) object(i, depth int) (end int, err error) {
	var members []member
	sorted := true
	c.out = append(c.out, '{')
	start := len(c.out)
	for i = c.space(i + 1); c.document[i] != '}'; i = c.comma(i) {
		nameEnd := c.stringEnd(i)
		name, err := decode(c.document[i:nameEnd])
		if err != nil {
			return 0, err
		}
		if n := len(members); n > 0 {
			c.out = append(c.out, ',')
			sorted = sorted && compareUTF16(members[n-1].name, name) < 0
		}
		from := len(c.out)
		c.out = append(appendString(c.out, name), ':')
		if i, err = c.value(c.space(c.space(nameEnd)+1), depth); err != nil { // after the colon
			return 0, err
		}
		members = append(members, member{name, from, len(c.out)})
	}
	if !sorted {
		if err := c.sort(members, start); err != nil {
			return 0, err
		}
	}
	c.out = append(c.out, '}')
	return i + 1, nil
}

// sort puts the members, which begin at start, in order.
func (c *canonicalizer) sort(members []member, start int) error {
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	c.scratch = append(c.scratch[:0], c.out[start:]...)
	c.out = c.out[:start]
	for n, m := range members {
		if n > 0 {
			if bytes.Equal(m.name, members[n-1].name) {
				return errSameName
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.scratch[m.from-start:m.to-start]...)
	}
	return nil
}

func (c *canonicalizer) array(i, depth int) (end int, err error) {
	c.out = append(c.out, '[')
	first := true
	for i = c.space(i + 1); c.document[i] != ']'; i = c.comma(i) {
		if !first {
			c.out = append(c.out, ',')
		}
		first = false
		if i, err = c.value(i, depth); err != nil {
			return 0, err
		}
	}
	c.out = append(c.out, ']')
	return i + 1, nil
}

// compareUTF16 orders two texts by their UTF-16 code units, as RFC 8785 does. UTF-8 has
// another order where one of two characters needs a surrogate pair.
func compareUTF16(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		x, n := utf8.DecodeRune(a)
		y, m := utf8.DecodeRune(b)
		if x != y {
			return orderUTF16(x) - orderUTF16(y)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// orderUTF16 maps characters to numbers in the order of their UTF-16 code units: surrogates
// come before the characters from U+E000 to U+FFFF.
func orderUTF16(r rune) int {
	if 0xe000 <= r && r <= 0xffff {
		return int(r) + utf8.MaxRune
	}
	return int(r)
}

// decode returns the characters of a valid JSON string. It refuses half of a surrogate pair, which
// is not a character.
func decode(quoted []byte) ([]byte, error) {
	for i := bytes.IndexByte(quoted, '\\'); i >= 0 && i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++ // the escaped character
		if quoted[i] != 'u' {
			continue
		}
		r := unit(quoted[i+1:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if !bytes.HasPrefix(quoted[i+1:], []byte(`\u`)) || utf16.DecodeRune(r, unit(quoted[i+3:])) == utf8.RuneError {
			return nil, errSurrogate
		}
		i += 6
	}
	return unquote(quoted), nil
}

// unit returns the number of the four hexadecimal digits at the beginning of s.
func unit(s []byte) rune {
	n, _ := strconv.ParseUint(string(s[:4]), 16, 16) // json.Valid has accepted it
	return rune(n)
}

// appendString appends a JSON string that has no escape unless JSON demands one.
func appendString(out, text []byte) []byte {
	out = append(out, '"')
	for _, b := range text {
		switch b {
		case '"', '\\':
			out = append(out, '\\', b)
		case '\b':
			out = append(out, '\\', 'b')
		case '\t':
			out = append(out, '\\', 't')
		case '\n':
			out = append(out, '\\', 'n')
		case '\f':
			out = append(out, '\\', 'f')
		case '\r':
			out = append(out, '\\', 'r')
		default:
			if b < ' ' {
				const hex = "0123456789abcdef"
				out = append(out, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
			} else {
				out = append(out, b)
			}
		}
	}
	return append(out, '"')
}
