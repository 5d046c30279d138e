package keyfunc

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the recursion. Nothing with an identifier in it is that deep.
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

// walker goes over a document that json.Valid has accepted, so that it needs no
// second opinion on the grammar: every bracket has its partner, every string
// its end. It looks at what json.Valid does not: the names of members, and the
// way to one value.
type walker struct {
	doc    string
	tokens []pointerToken
	raw    string // the value that tokens lead to, as written; "" if absent
}

// find returns the text of the value that tokens lead to in data, "" if it is
// absent.
func find(data []byte, tokens []pointerToken) (string, error) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return "", errNotJSON
	}
	w := walker{doc: string(data), tokens: tokens}
	if _, err := w.value(w.space(0), 0, 0); err != nil {
		return "", err
	}
	if w.raw == "" {
		return "", nil
	}
	switch c := w.raw[0]; {
	case c == '"':
		return unquote(w.raw), nil
	case c != '-' && (c < '0' || c > '9'):
		return "", errNotAKey
	case strings.ContainsAny(w.raw, ".eE"):
		return "", errNotInteger
	case w.raw == "-0":
		return "0", nil
	}
	return w.raw, nil
}

// off is the number of matched tokens for values off the path.
const off = -1

// value visits the value at i, to which matched tokens of the pointer lead, and
// returns where it ends.
func (w *walker) value(i, matched, depth int) (int, error) {
	start, here := i, matched == len(w.tokens)
	if here {
		matched = off
	}
	var err error
	switch c := w.doc[i]; {
	case (c == '{' || c == '[') && depth == maxDepth:
		return 0, errTooDeep
	case c == '{':
		i, err = w.object(i, matched, depth+1)
	case c == '[':
		i, err = w.array(i, matched, depth+1)
	case matched != off:
		return 0, errNoWay
	case c == '"':
		i = w.stringEnd(i)
	default:
		for i < len(w.doc) && !strings.ContainsRune(",]} \t\r\n", rune(w.doc[i])) {
			i++
		}
	}
	if here {
		w.raw = w.doc[start:i]
	}
	return i, err
}

func (w *walker) object(i, matched, depth int) (int, error) {
	seen := make(map[string]struct{})
	i = w.space(i + 1)
	for w.doc[i] != '}' {
		end := w.stringEnd(i)
		name := unquote(w.doc[i:end])
		folded := foldCase(name)
		if _, twin := seen[folded]; twin {
			return 0, errDuplicate
		}
		seen[folded] = struct{}{}

		next := off
		if matched != off && folded == w.tokens[matched].folded {
			if name != w.tokens[matched].name {
				return 0, errOtherCase
			}
			next = matched + 1
		}
		colon := w.space(end)
		var err error
		if i, err = w.value(w.space(colon+1), next, depth); err != nil {
			return 0, err
		}
		i = w.comma(i)
	}
	return i + 1, nil
}

func (w *walker) array(i, matched, depth int) (int, error) {
	if matched != off && w.tokens[matched].index < 0 {
		return 0, errNoWay
	}
	i = w.space(i + 1)
	for n := 0; w.doc[i] != ']'; n++ {
		next := off
		if matched != off && n == w.tokens[matched].index {
			next = matched + 1
		}
		var err error
		if i, err = w.value(i, next, depth); err != nil {
			return 0, err
		}
		i = w.comma(i)
	}
	return i + 1, nil
}

// space returns the first index from i on that is not white space.
func (w *walker) space(i int) int {
	for i < len(w.doc) && strings.IndexByte(" \t\r\n", w.doc[i]) >= 0 {
		i++
	}
	return i
}

// comma skips the comma behind a member or element, if there is one.
func (w *walker) comma(i int) int {
	i = w.space(i)
	if w.doc[i] == ',' {
		i = w.space(i + 1)
	}
	return i
}

// stringEnd returns the index behind the string that starts at i.
func (w *walker) stringEnd(i int) int {
	for i++; w.doc[i] != '"'; i++ {
		if w.doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}
