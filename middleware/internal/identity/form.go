package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

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

// parsedFormSum hashes a form that outer middleware has parsed, as the handler sees it. Its error
// matches bodybuf.ErrConsumed.
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
