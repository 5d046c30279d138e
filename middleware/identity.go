package middleware

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
)

// identify says which record x belongs to, and what it asks for. It reads the
// whole body, so that a client that sends it slowly holds no claim meanwhile.
func (x *execution) identify() error {
	g, r := x.guard, x.request
	scope, err := call(g.scope, r)
	if err != nil {
		return err
	}
	var key string
	if g.key != nil {
		if key, err = call(g.key, r); err != nil {
			return err
		}
	}
	body, err := bodybuf.Bytes(r, g.requestLimit)
	if err != nil && (g.fingerprint == nil || !errors.Is(err, bodybuf.ErrConsumed)) {
		return &bodyError{err}
	}
	path := canonicalPath(r.URL)
	if x.asked, err = g.fingerprintOf(r, path, body, err); err != nil {
		return err
	}
	if g.key == nil {
		key = string(x.asked[:])
	}
	x.call.Scope = scope
	x.id = identity(g.name, scope, r.Method, path, key)
	return nil
}

// fingerprintOf is that of a request with a body that was read with err, which
// is nil or that of a body that is gone. Such a one is needed only for a
// fingerprint of the whole request.
func (g *onceGuard) fingerprintOf(r *http.Request, path string, body []byte, err error) (fingerprint, error) {
	if g.fingerprint == nil {
		return fingerprintOfRequest(r, path, body)
	}
	chosen, missing := call(g.fingerprint, r)
	switch {
	case missing == nil:
		return fingerprintOfParts(chosen), nil
	case !errors.Is(missing, keyfunc.ErrSkip):
		return fingerprint{}, missing
	case err != nil:
		return fingerprint{}, &bodyError{err}
	}
	// What is to be compared is not there. The request is guarded all the same,
	// and compared as a whole.
	return fingerprintOfRequest(r, path, body)
}

// bodyError says that the body cannot be taken.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// identityProblem is the answer to a request that could not be identified.
func identityProblem(err error) *Problem {
	var body *bodyError
	switch {
	case !errors.As(err, &body), errors.Is(body, bodybuf.ErrConsumed):
		return keyProblem(err)
	case errors.Is(body, bodybuf.ErrTooLarge):
		return bodyTooLarge.problem(http.StatusRequestEntityTooLarge, 0, body)
	default:
		return bodyUnreadable.problem(http.StatusBadRequest, 0, body)
	}
}

// canonicalPath is the path in one spelling, that of [url.URL.EscapedPath] for a
// path that came without escapes: "/orders/%37" is "/orders/7", and "/a%3Bb" is
// "/a;b", but "/orders/a%2Fb" is not "/orders/a/b".
func canonicalPath(u *url.URL) string {
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

// identity is the key of a record. It is a hash: what it is made of may be
// long, and is nothing that should stand in an event or a log. The Locker hashes
// it once more, which takes one block as long as all of it has 55 bytes.
func identity(name string, parts ...string) string {
	b := make([]byte, 0, 512)
	for _, p := range parts {
		b = appendSized(b, p)
	}
	sum := sha256.Sum256(b)
	// As lock.Key would compose them, of which nothing needs an escape.
	b = append(append(b[:0], name...), '=')
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:]))
}

// appendSized appends s behind its length, so that two lists of strings give
// the same bytes only if they are equal.
func appendSized(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
