package middleware

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"mime"

	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

// appendMultipart appends a hash of a multipart body. The boundary, which is
// new each time that a browser sends a form, is left out of it if body is a form
// that consists of its parts and of nothing else, as all of them do: the
// boundary and the parts, byte by byte, are then all there is in it. In any
// other body, bytes before and behind the parts may mean something, and so may
// every parameter of the type.
func appendMultipart(b []byte, contentType string, body []byte) []byte {
	h := sha256.New()
	kind, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	delete(params, "boundary")
	if others := mime.FormatMediaType(kind, params); err == nil && kind == "multipart/form-data" && boundary != "" && others != "" {
		_, _ = h.Write(lenprefix.Append(nil, others)) // a hash takes everything
		if hashParts(h, body, []byte("--"+boundary)) {
			return h.Sum(append(b, 'p'))
		}
	}
	h.Reset()
	_, _ = h.Write(lenprefix.Append(nil, contentType))
	_, _ = h.Write(body)
	return h.Sum(append(b, 'm'))
}

// hashParts writes the parts of body, with their headers, to h. It reports false
// if the delimiter occurs anywhere but in lines before, between and behind them,
// or if there is anything in addition to the parts and those lines. An empty line in
// front is nothing: some writers begin a form without parts with it.
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
