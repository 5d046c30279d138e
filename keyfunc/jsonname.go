package keyfunc

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// unquote decodes a valid JSON string as encoding/json does. The result may share its
// bytes.
func unquote(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	// json.Valid has accepted the text, so Unmarshal cannot fail.
	_ = json.Unmarshal(quoted, &s)
	return []byte(s)
}

// foldCase maps names that strings.EqualFold finds equal to the same text. encoding/json compares
// the members of structs in the same way. Most names are already that text.
func foldCase(s []byte) []byte {
	for _, c := range s {
		if c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return bytes.Map(foldRune, s)
		}
	}
	return s
}

// foldRune maps the runes that differ only in case to one of them: the smallest, or its
// lower-case form if that is an ASCII letter, so that most names stay unchanged.
func foldRune(r rune) rune {
	if r >= utf8.RuneSelf {
		for next := unicode.SimpleFold(r); next > r; next = unicode.SimpleFold(r) {
			r = next
		}
		r = unicode.SimpleFold(r)
	}
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}
