package middleware

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

// The first byte of a fingerprint says how it was made. Those that were made
// in two ways cannot be compared.
const (
	wholeRequest = 1
	chosenParts  = 2
	parsedForm   = 3
)

// fingerprint is a version and a hash.
type fingerprint [1 + sha256.Size]byte

// fingerprintOfRequest distinguishes requests by their method, path, query and
// body. Where something outside the guard has parsed a form, it is by that form,
// and by what is left of the body: all of it if it was put back, else nothing, or
// what stood behind the form.
func fingerprintOfRequest(r *http.Request, path string, body []byte) (fingerprint, error) {
	b := make([]byte, 0, 512)
	b = lenprefix.Append(b, r.Method)
	b = lenprefix.Append(b, path)
	b = lenprefix.Append(b, canonicalQuery(r.URL.RawQuery))
	if !bodybuf.FormParsed(r) {
		return versioned(wholeRequest, appendContent(b, r.Header["Content-Type"], body)), nil
	}
	form, err := parsedFormSum(r)
	if err != nil {
		return fingerprint{}, &bodyError{err}
	}
	b = append(b, form[:]...)
	if len(body) > 0 {
		b = appendContent(b, r.Header["Content-Type"], body)
	}
	return versioned(parsedForm, b), nil
}

// fingerprintOfParts is that of what a WithFingerprint function returned.
func fingerprintOfParts(key string) fingerprint { return versioned(chosenParts, []byte(key)) }

func versioned(version byte, b []byte) (f fingerprint) {
	f[0] = version
	sum := sha256.Sum256(b)
	copy(f[1:], sum[:])
	return f
}

// canonicalQuery brings the parameters into one order, except for the values
// of one name, whose order means something. A query that does not parse is
// taken as it is, because net/url drops the parts that it does not understand.
func canonicalQuery(raw string) string {
	if raw == "" {
		return ""
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "?" + raw // no encoded query begins so
	}
	return values.Encode()
}

// shortBody is the longest that is not worth its own hash.
const shortBody = 256

// appendContent appends the body, or a hash of it.
func appendContent(b []byte, contentType []string, body []byte) []byte {
	const multi = "multipart/"
	if len(contentType) > 0 && len(contentType[0]) > len(multi) && strings.EqualFold(contentType[0][:len(multi)], multi) {
		return appendMultipart(b, contentType[0], body)
	}
	if len(body) <= shortBody {
		return append(append(b, 'b'), body...)
	}
	sum := sha256.Sum256(body)
	return append(append(b, 'w'), sum[:]...)
}
