package middleware

import (
	"bytes"
	"crypto/sha256"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The first byte of a fingerprint says how it was made. Those that were made
// in two ways cannot be compared.
const (
	wholeRequest = 1
	chosenParts  = 2
)

// fingerprint is a version and a hash.
type fingerprint [1 + sha256.Size]byte

// fingerprintOfRequest tells requests apart by their method, path, query and
// body.
func fingerprintOfRequest(r *http.Request, path string, body []byte) fingerprint {
	b := make([]byte, 0, 512)
	b = appendSized(b, r.Method)
	b = appendSized(b, path)
	b = appendSized(b, canonicalQuery(r.URL.RawQuery))
	return versioned(wholeRequest, appendContent(b, r.Header["Content-Type"], body))
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

// shortBody is the longest that is not worth a hash of its own.
const shortBody = 256

// appendContent appends the body, or a hash of it. A form that a browser sends
// again as multipart has a new boundary, so such a body is hashed by its parts.
func appendContent(b []byte, contentType []string, body []byte) []byte {
	const multi = "multipart/"
	if len(contentType) > 0 && len(contentType[0]) > len(multi) && strings.EqualFold(contentType[0][:len(multi)], multi) {
		if sum, ok := partsSum(contentType[0], body); ok {
			return append(append(b, 'p'), sum[:]...)
		}
	}
	if len(body) <= shortBody {
		return append(append(b, 'b'), body...)
	}
	sum := sha256.Sum256(body)
	return append(append(b, 'w'), sum[:]...)
}

// epilogue reports whether there is anything behind the parts, which a reader
// of the parts would not see.
func epilogue(body []byte, boundary string) bool {
	_, after, found := bytes.Cut(body, []byte("\n--"+boundary+"--"))
	return found && len(bytes.TrimSpace(after)) > 0
}

// partsSum hashes the parts of a multipart body in their order. ok is false if
// it is not well-formed.
func partsSum(contentType string, body []byte) (sum [sha256.Size]byte, ok bool) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" || epilogue(body, params["boundary"]) {
		return sum, false
	}
	all := appendSized(nil, kind)
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	part := sha256.New()
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF { // itself: an error that wraps it is a body that was cut off
			return sha256.Sum256(all), true
		}
		if err != nil {
			return sum, false
		}
		part.Reset()
		head := make([]byte, 0, 256)
		for _, name := range slices.Sorted(maps.Keys(p.Header)) {
			head = appendSized(head, name)
			head = appendSized(head, strings.Join(p.Header[name], "\n")) // a value has no line breaks
		}
		// A hash takes everything.
		_, _ = part.Write(appendSized(nil, string(head)))
		if _, err := io.Copy(part, p); err != nil {
			return sum, false
		}
		all = part.Sum(all)
	}
}
