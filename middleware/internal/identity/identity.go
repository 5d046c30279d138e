// Package identity makes the key of a request's record. Guards claim it, and the operator's
// page looks for it.
package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"path"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

// Idempotent begins the keys of the records of middleware.Idempotent.
const Idempotent = "idempotent"

// Of returns the key of a record. It is a hash: the parts may be long, and must not appear in
// an event or a log. The Locker hashes the key once more, which takes one block of SHA-256 if
// the key has at most 55 bytes.
func Of(name string, parts ...string) string {
	b := make([]byte, 0, 512)
	for _, p := range parts {
		b = lenprefix.Append(b, p)
	}
	sum := sha256.Sum256(b)
	// The form is the same as in lock.Key. No byte needs an escape.
	b = append(append(b[:0], name...), '=')
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:]))
}

// Path returns the path in one spelling, as [url.URL.EscapedPath] spells a path that came
// without escapes: "/orders/%37" is "/orders/7", and "/a%3Bb" is "/a;b", but
// "/orders/a%2Fb" is not "/orders/a/b".
//
// It is a clean path without a slash at its end: "/orders/" and "//orders" are "/orders". A router
// may serve all three by one route without changing the request, as chi does behind StripSlashes
// and CleanPath, and one key must not make three orders there. Where they are different routes,
// only a client that uses one key for two of them notices that they share records.
func Path(u *url.URL) string {
	p := u.EscapedPath()
	if !strings.HasPrefix(p, "/") { // as http.StripPrefix may leave it
		p = "/" + p
	}
	p = path.Clean(p)
	if u.RawPath == "" {
		return p // encoded by default
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = unescapedInPaths.Replace(url.PathEscape(plain))
		}
	}
	return strings.Join(segments, "/")
}

// unescapedInPaths undoes those escapes of the default encoding of a segment that the encoding of a
// whole path does not make.
var unescapedInPaths = strings.NewReplacer("%3B", ";", "%2C", ",")
