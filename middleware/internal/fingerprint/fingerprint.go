// Package fingerprint hashes a request: two requests with one key are the same request if their
// hashes are equal.
package fingerprint

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

// The first byte of a fingerprint is its kind. Fingerprints of two kinds cannot be compared.
const (
	wholeRequest = 1
	chosenParts  = 2
	parsedForm   = 3
)

// Sum is a fingerprint: its kind and a hash.
type Sum [1 + sha256.Size]byte

// OfRequest hashes method, path, query and body. If outer middleware has parsed a form, it hashes
// the form and the unread part of the body: the whole body if the middleware has put it back.
func OfRequest(r *http.Request, path string, body []byte) (Sum, error) {
	b := make([]byte, 0, 512)
	b = lenprefix.Append(b, r.Method)
	b = lenprefix.Append(b, path)
	b = lenprefix.Append(b, canonicalQuery(r.URL.RawQuery))
	if !bodybuf.FormParsed(r) {
		return sumOf(wholeRequest, appendContent(b, r.Header["Content-Type"], body)), nil
	}
	form, err := parsedFormSum(r)
	if err != nil {
		return Sum{}, err
	}
	b = append(b, form[:]...)
	if len(body) > 0 {
		b = appendContent(b, r.Header["Content-Type"], body)
	}
	return sumOf(parsedForm, b), nil
}

// OfParts hashes the result of a WithFingerprint function.
func OfParts(key string) Sum { return sumOf(chosenParts, []byte(key)) }

func sumOf(kind byte, b []byte) (s Sum) {
	s[0] = kind
	hash := sha256.Sum256(b)
	copy(s[1:], hash[:])
	return s
}

// canonicalQuery sorts the parameters by name. The values of one name keep their order,
// which has a meaning. A malformed query stays unchanged, because net/url drops the parts
// that it cannot parse.
func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "?" + raw // no encoded query begins with "?"
	}
	return values.Encode()
}

// shortBody is the longest body without a hash of its own.
const shortBody = 256

// appendContent appends the body, or its hash.
func appendContent(b []byte, contentType []string, body []byte) []byte {
	const multi = "multipart/"
	if len(contentType) > 0 && len(contentType[0]) > len(multi) && strings.EqualFold(contentType[0][:len(multi)], multi) {
		return appendMultipart(b, contentType[0], body)
	}
	if len(body) <= shortBody {
		return append(append(b, 'b'), body...)
	}
	hash := sha256.Sum256(body)
	return append(append(b, 'w'), hash[:]...)
}
