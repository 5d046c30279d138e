package middleware

import (
	"encoding/json"
	"strconv"
)

// body is written by hand: encoding/json would be the most expensive part of a
// refusal.
func (p *Problem) body(status int) []byte {
	b := append(make([]byte, 0, 256), '{')
	for _, member := range [...][2]string{{`"type":`, p.Type}, {`"title":`, p.Title}, {`"detail":`, p.Detail}} {
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
		// Go 1.26 escapes what stands for a byte that is not UTF-8, and Go 1.27 does
		// not. Conversion to runes replaces each such byte, as both do.
		quoted, err := json.Marshal(string([]rune(s)))
		if err != nil {
			quoted = []byte(`""`) // it cannot be, and the status says enough
		}
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// literal reports whether encoding/json would write s as it is.
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
