// Package fingerprint hashes a request: two requests with one key are the same request if their
// hashes are equal.
package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
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
	sum := sha256.Sum256(b)
	copy(s[1:], sum[:])
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
	sum := sha256.Sum256(body)
	return append(append(b, 'w'), sum[:]...)
}

// appendMultipart appends a hash of a multipart body. Browsers choose a new boundary for each
// submission. So the hash omits the boundary if the body consists only of the parts of a form, as
// browsers send it. In any other body, bytes around the parts may have a meaning, and so may every
// parameter of the type: all of it is hashed.
func appendMultipart(b []byte, contentType string, body []byte) []byte {
	h := sha256.New()
	kind, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"] // with an empty one, hashParts finds no end
	delete(params, "boundary")
	if others := mime.FormatMediaType(kind, params); err == nil && kind == "multipart/form-data" && others != "" {
		_, _ = h.Write(lenprefix.Append(nil, others)) // a write to a hash never fails
		if hashParts(h, body, []byte("--"+boundary)) {
			return h.Sum(append(b, 'p'))
		}
	}
	h.Reset()
	_, _ = h.Write(lenprefix.Append(nil, contentType))
	_, _ = h.Write(body)
	return h.Sum(append(b, 'm'))
}

// hashParts writes the parts of body, with their headers, to h. It returns false if the delimiter
// occurs elsewhere than in the lines around the parts, or if the body has bytes other than parts
// and these lines. It accepts an empty line at the beginning, which some writers put before a form
// without parts.
func hashParts(h hash.Hash, body, delimiter []byte) bool {
	const newline = "\r\n"
	rest, found := bytes.CutPrefix(bytes.TrimPrefix(body, []byte(newline)), delimiter)
	for found {
		var part []byte
		if part, rest, found = bytes.Cut(rest, delimiter); !found {
			return string(part) == "--" || string(part) == "--"+newline
		}
		if len(part) < 2*len(newline) || !bytes.HasPrefix(part, []byte(newline)) || !bytes.HasSuffix(part, []byte(newline)) {
			return false
		}
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		_, _ = h.Write(part)
	}
	return false
}

// parsedFormSum hashes a form that outer middleware has parsed, as the handler sees it. Its error
// matches bodybuf.ErrConsumed.
func parsedFormSum(r *http.Request) (sum [sha256.Size]byte, err error) {
	all := lenprefix.Append(nil, r.PostForm.Encode())
	if form := r.MultipartForm; form != nil {
		all = lenprefix.Append(all, url.Values(form.Value).Encode())
		content := sha256.New()
		for _, field := range slices.Sorted(maps.Keys(form.File)) {
			for _, file := range form.File[field] {
				if err := hashFile(content, file); err != nil {
					return sum, fmt.Errorf("%w: a file of the form that was parsed cannot be read: %w", bodybuf.ErrConsumed, err)
				}
				all = lenprefix.Append(lenprefix.Append(all, field), file.Filename)
				all = content.Sum(lenprefix.Append(all, url.Values(file.Header).Encode()))
			}
		}
	}
	return sha256.Sum256(all), nil
}

// hashFile makes h the hash of the content of file, which may be on disk.
func hashFile(h hash.Hash, file *multipart.FileHeader) error {
	content, err := file.Open()
	if err != nil {
		return err
	}
	h.Reset()
	_, err = io.Copy(h, content)
	// Nothing was written, so an error of Close loses nothing.
	_ = content.Close()
	return err
}
