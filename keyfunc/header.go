package keyfunc

import (
	"net/http"
	"net/textproto"
)

// Header takes the value of a request header: Header("X-User-ID").
//
// Any client can send a header. Use one only if your own proxy sets it on every request
// and replaces the client's value (replaces, not appends).
//
// The value is used unchanged, without the blanks around it. A header that is sent twice
// is refused with 400, even with equal values: the handler may read the other one. Control
// characters and values over 1 KiB are refused with 400, too. An absent or empty header is
// [ErrMissing].
//
// For Authorization, Proxy-Authorization and Cookie, the key is the SHA-256 of the value,
// as [Hash] makes it: keys can be read in the store, in the console and in logs, and are kept
// after the request. A password that can be guessed can be guessed from its hash, too. A renewed
// token, or a change of any cookie, makes another key. It is better to take the user from the
// authentication, with [Context]. Hash any other header that is a secret.
//
// Header panics if name cannot be the name of a header, and for "Host", which net/http
// moves to Request.Host.
func Header(name string) Func {
	named("Header", name)
	for i := range len(name) {
		if !tokenByte(name[i]) {
			panic("keyfunc.Header: " + name + " cannot be the name of a header")
		}
	}
	from := source("header " + name)
	name = textproto.CanonicalMIMEHeaderKey(name)
	if name == "Host" {
		panic("keyfunc.Header: Host is never among the headers; write a Func that reads Request.Host")
	}
	f := headerValue(name, from)
	switch name {
	case "Authorization", "Proxy-Authorization", "Cookie":
		return Hash(f)
	}
	return f
}

func headerValue(name string, from source) Func {
	return func(r *http.Request) (string, error) {
		var value string
		switch lines := r.Header[name]; len(lines) {
		case 0:
		case 1:
			// HTTP/1 has trimmed the value, and HTTP/2 has not. One user must not have two keys.
			value = textproto.TrimString(lines[0])
		default:
			return "", from.bad("is sent twice; send it once")
		}
		return from.check(value, "let the gateway set it")
	}
}

// tokenByte reports whether c may occur in the name of a header.
func tokenByte(c byte) bool {
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
