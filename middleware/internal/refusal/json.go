package refusal

import (
	"encoding/json"
	"strconv"
)

// JSON returns a problem of RFC 9457, without the members that are "". It does not use
// encoding/json, which would be the most expensive part of a refusal.
func JSON(kind, title, detail string, status int) []byte {
	b := append(make([]byte, 0, 256), '{')
	for _, member := range [...][2]string{{`"type":`, kind}, {`"title":`, title}, {`"detail":`, detail}} {
		if member[1] != "" {
			b = append(appendJSON(append(b, member[0]...), member[1]), ',')
		}
	}
	b = strconv.AppendInt(append(b, `"status":`...), int64(status), 10)
	return append(b, '}', '\n')
}

// appendJSON appends s as a JSON string.
func appendJSON(b []byte, s string) []byte {
	if !literal(s) {
		// Go 1.26 escapes the replacement of a byte that is not UTF-8, and Go 1.27 does not.
		// Conversion to runes replaces each such byte, as both do.
		quoted, err := json.Marshal(string([]rune(s)))
		if err != nil {
			quoted = []byte(`""`) // impossible; the status says enough
		}
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// literal reports whether encoding/json would write s unchanged.
func literal(s string) bool {
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '<', '>', '&':
			return false
		default:
			if c < ' ' || c > '~' {
				return false
			}
		}
	}
	return true
}
