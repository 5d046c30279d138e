// Package identity says which requests are the same, by the key of a record and the fingerprint of its content.
package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Idempotent begins the keys of the records of middleware.Idempotent.
const Idempotent = "idempotent"

// Of returns the key of a record. It is a hash: the parts may be long, and must not appear in an event or a log. The
// Locker hashes the key once more, which takes one block of SHA-256 if the key has at most 55 bytes.
func Of(name string, parts ...string) string {
	b := make([]byte, 0, 512)
	for _, p := range parts {
		b = record.AppendText(b, p)
	}
	sum := sha256.Sum256(b)
	// The form is the same as in lock.Key. No byte needs an escape.
	b = append(append(b[:0], name...), '=')
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:]))
}

// Path returns the path in one spelling, as [url.URL.EscapedPath] spells a path that came without escapes:
// "/orders/%37" is "/orders/7", and "/a%3Bb" is "/a;b", but "/orders/a%2Fb" is not "/orders/a/b".
//
// "/orders/" and "//orders" are "/orders": a router may serve all three by one route without changing the request, as
// chi does behind StripSlashes and CleanPath, and one key must not make three orders there. Where they are different
// routes, only a client that uses one key for two of them notices that they share records.
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

// unescapedInPaths undoes escapes in a segment that the encoding of a whole path does not make.
var unescapedInPaths = strings.NewReplacer("%3B", ";", "%2C", ",")

// Fingerprint is a hash of the content of a request, behind a byte for its kind. Two kinds cannot be compared.
type Fingerprint [1 + sha256.Size]byte

const (
	wholeRequest = 1
	chosenParts  = 2
	parsedForm   = 3
)

// OfParts hashes the result of a WithFingerprint function.
func OfParts(key string) Fingerprint { return hashed(chosenParts, []byte(key)) }

// OfRequest hashes method, path, query and body. If outer middleware has parsed a form, it hashes the form and the
// unread part of the body: the whole body if the middleware has put it back. Query parameters are sorted by name. A
// malformed query stays unchanged, because net/url drops the parts that it cannot parse.
func OfRequest(r *http.Request, cleanPath string, body []byte) (Fingerprint, error) {
	query := r.URL.RawQuery
	if query != "" {
		values, err := url.ParseQuery(query)
		if query = "?" + query; err == nil { // no encoded query begins with "?"
			query = values.Encode()
		}
	}
	b := record.AppendText(make([]byte, 0, 512), r.Method)
	b = record.AppendText(record.AppendText(b, cleanPath), query)
	kind := byte(wholeRequest)
	if bodybuf.FormParsed(r) {
		form, err := parsedFormSum(r)
		if err != nil {
			return Fingerprint{}, err
		}
		if kind, b = parsedForm, append(b, form[:]...); len(body) == 0 {
			return hashed(kind, b), nil
		}
	}
	const multi, shortBody = "multipart/", 256
	switch contentType := r.Header["Content-Type"]; {
	case len(contentType) > 0 && len(contentType[0]) > len(multi) && strings.EqualFold(contentType[0][:len(multi)], multi):
		b = appendMultipart(b, contentType[0], body)
	case len(body) <= shortBody:
		b = append(append(b, 'b'), body...)
	default:
		sum := sha256.Sum256(body)
		b = append(append(b, 'w'), sum[:]...)
	}
	return hashed(kind, b), nil
}

func hashed(kind byte, b []byte) (f Fingerprint) {
	f[0] = kind
	sum := sha256.Sum256(b)
	copy(f[1:], sum[:])
	return f
}

// appendMultipart appends a hash of a multipart body. Browsers choose a new boundary for each submission. So the hash
// omits the boundary if the body consists only of the parts of a form, as browsers send it. In any other body, bytes
// around the parts and parameters of the type may have a meaning: all of it is hashed.
func appendMultipart(b []byte, contentType string, body []byte) []byte {
	h := sha256.New()
	kind, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"] // with an empty one, hashParts finds no end
	delete(params, "boundary")
	if others := mime.FormatMediaType(kind, params); err == nil && kind == "multipart/form-data" && others != "" {
		_, _ = h.Write(record.AppendText(nil, others)) // a write to a hash never fails
		if hashParts(h, body, []byte("--"+boundary)) {
			return h.Sum(append(b, 'p'))
		}
	}
	h.Reset()
	_, _ = h.Write(record.AppendText(nil, contentType))
	_, _ = h.Write(body)
	return h.Sum(append(b, 'm'))
}

// hashParts writes the parts of body, with their headers, to h. It returns false if the body has anything but parts
// and the lines around them, except for an empty line at the beginning, which some writers put before a form without
// parts.
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

// parsedFormSum hashes a form that outer middleware has parsed. Its error matches bodybuf.ErrConsumed.
func parsedFormSum(r *http.Request) (sum [sha256.Size]byte, err error) {
	all := record.AppendText(nil, r.PostForm.Encode())
	if form := r.MultipartForm; form != nil {
		all = record.AppendText(all, url.Values(form.Value).Encode())
		for _, field := range slices.Sorted(maps.Keys(form.File)) {
			for _, file := range form.File[field] {
				content := sha256.New()
				f, err := file.Open() // it may be on disk
				if err == nil {
					_, err = io.Copy(content, f)
					_ = f.Close() // nothing was written
				}
				if err != nil {
					return sum, fmt.Errorf("%w: a file of the form that was parsed cannot be read: %w", bodybuf.ErrConsumed, err)
				}
				all = record.AppendText(record.AppendText(all, field), file.Filename)
				all = content.Sum(record.AppendText(all, url.Values(file.Header).Encode()))
			}
		}
	}
	return sha256.Sum256(all), nil
}
