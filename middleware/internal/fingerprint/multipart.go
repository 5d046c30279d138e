package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"mime"

	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

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
