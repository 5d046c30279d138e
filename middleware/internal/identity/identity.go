// Package identity says under which key the record of a request is: the guards
// claim it, and the operator's page looks for it.
package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

// Idempotent is the name under which middleware.Idempotent has its records.
const Idempotent = "idempotent"

// Of is the key of a record. It is a hash: what it is made of may be
// long, and is nothing that should stand in an event or a log. The Locker hashes
// it once more, which takes one block as long as all of it has 55 bytes.
func Of(name string, parts ...string) string {
	b := make([]byte, 0, 512)
	for _, p := range parts {
		b = lenprefix.Append(b, p)
	}
	sum := sha256.Sum256(b)
	// As lock.Key would compose them, of which nothing needs an escape.
	b = append(append(b[:0], name...), '=')
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:]))
}

// Path is the path in one spelling, that of [url.URL.EscapedPath] for a
// path that came without escapes: "/orders/%37" is "/orders/7", and "/a%3Bb" is
// "/a;b", but "/orders/a%2Fb" is not "/orders/a/b".
func Path(u *url.URL) string {
	if u.RawPath == "" {
		return u.EscapedPath() // the default encoding of what it decodes to
	}
	segments := strings.Split(u.EscapedPath(), "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = unescapedInPaths.Replace(url.PathEscape(plain))
		}
	}
	return strings.Join(segments, "/")
}

// unescapedInPaths is what the default encoding of a path leaves as it is, and
// that of a segment does not.
var unescapedInPaths = strings.NewReplacer("%3B", ";", "%2C", ",")
