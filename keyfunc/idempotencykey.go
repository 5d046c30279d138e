package keyfunc

import (
	"net/http"
	"net/textproto"
	"strings"
)

const maxIdempotencyKey = 255

// IdempotencyKey takes the Idempotency-Key header. It is itself a [Func]:
//
//	latch.Idempotent(l, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
// The header is a string of RFC 8941 ("8e03978e-40d5"), as its draft demands, or the same without
// the quotes, as most clients send it. Both are one key. The key has 1 to 255 printable ASCII
// characters. Without quotes, it must not contain characters with a meaning in a structured
// field: blank, quote, backslash, comma, semicolon, parenthesis.
//
// An absent header is [ErrMissing]. A header that is empty, sent twice, a list, or has
// parameters is refused with 400: the client meant to be protected.
func IdempotencyKey(r *http.Request) (string, error) {
	const from = source("header Idempotency-Key")
	var value string
	switch lines := r.Header["Idempotency-Key"]; len(lines) {
	case 0:
		return "", errNoIdempotencyKey
	case 1:
		value = textproto.TrimString(lines[0])
	default:
		return "", from.bad("is sent twice; send it once")
	}
	// In quotes every character may have a backslash in front.
	if len(value) > 2*maxIdempotencyKey+2 {
		return "", from.bad("is over 255 bytes long; send less")
	}
	ok := true
	if strings.HasPrefix(value, `"`) {
		value, ok = structuredString(value)
	} else {
		for i := 0; ok && i < len(value); i++ {
			switch c := value[i]; c {
			case '"', '\\', ',', ';', '(', ')':
				ok = false
			default:
				ok = ' ' < c && c < 0x7f
			}
		}
	}
	switch {
	case !ok:
		return "", from.bad("is neither one string of RFC 8941 nor one bare key; send a UUID, say")
	case value == "":
		return "", from.bad("is empty; send a UUID, say")
	case len(value) > maxIdempotencyKey:
		return "", from.bad("is over 255 bytes long; send less")
	}
	return value, nil
}

var errNoIdempotencyKey = source("header Idempotency-Key").missing("send one that is new for every new submission")

// structuredString returns the value of a string of RFC 8941. ok is false if s is anything else, or
// has more characters after the string.
func structuredString(s string) (value string, ok bool) {
	var unescaped []byte // nil until there is something to unescape, which is rare
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"' && unescaped == nil:
			return s[1:i], i == len(s)-1
		case c == '"':
			return string(unescaped), i == len(s)-1
		case c < ' ' || c >= 0x7f:
			return "", false
		case c == '\\':
			if unescaped == nil {
				unescaped = append(make([]byte, 0, len(s)), s[1:i]...)
			}
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
			c = s[i]
		}
		if unescaped != nil {
			unescaped = append(unescaped, c)
		}
	}
	return "", false
}
