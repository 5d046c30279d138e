package middleware

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
)

// identify says which record r belongs to, and what it asks for. It reads the
// whole body, so that a client that sends it slowly holds no claim meanwhile.
func (g *onceGuard) identify(r *http.Request) (id string, fingerprint []byte, err error) {
	scope, err := call(g.scope, r)
	if err != nil {
		return "", nil, err
	}
	var key string
	if g.key != nil {
		if key, err = call(g.key, r); err != nil {
			return "", nil, err
		}
	}
	body, err := bodybuf.Bytes(r, g.requestLimit)
	if err != nil {
		return "", nil, &bodyError{err}
	}
	var chosen string
	if g.fingerprint != nil {
		chosen, err = call(g.fingerprint, r)
		switch {
		case err == nil:
			fingerprint = fingerprintOfParts(chosen)
		case errors.Is(err, keyfunc.ErrSkip):
			// What is to be compared is not there. The request is guarded all the
			// same, and compared as a whole.
			fingerprint = fingerprintOfRequest(r, body)
		default:
			return "", nil, err
		}
	} else {
		fingerprint = fingerprintOfRequest(r, body)
	}
	if g.key == nil {
		return identity(g.name, scope, r.Method, canonicalPath(r.URL), string(fingerprint)), nil, nil
	}
	return identity(g.name, scope, r.Method, canonicalPath(r.URL), key), fingerprint, nil
}

// bodyError says that the body cannot be taken.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

func (e *bodyError) problem() *Problem {
	if errors.Is(e, bodybuf.ErrTooLarge) {
		return bodyTooLarge.problem(http.StatusRequestEntityTooLarge, 0, e)
	}
	return bodyUnreadable.problem(http.StatusBadRequest, 0, e)
}

func call(f keyfunc.Func, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = keyfunc.ErrMissing
	}
	return key, err
}

// canonicalPath is the path in one spelling: "/orders/%37" is "/orders/7", but
// "/orders/a%2Fb" is not "/orders/a/b".
func canonicalPath(u *url.URL) string {
	if u.RawPath == "" {
		return u.EscapedPath() // the default encoding of what it decodes to
	}
	segments := strings.Split(u.EscapedPath(), "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = url.PathEscape(plain)
		}
	}
	return strings.Join(segments, "/")
}

// identity is the key of a record. It is a hash: what it is made of may be
// long, and is nothing that should stand in an event or a log.
func identity(name string, parts ...string) string {
	b := make([]byte, 0, 512)
	for _, p := range parts {
		b = appendSized(b, p)
	}
	sum := sha256.Sum256(b)
	// As lock.Key would compose them, of which nothing needs an escape.
	b = append(append(b[:0], name...), '=')
	return string(hex.AppendEncode(b, sum[:]))
}

// appendSized appends s behind its length, so that two lists of strings give
// the same bytes only if they are equal.
func appendSized(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}
