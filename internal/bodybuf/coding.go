package bodybuf

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
)

// ErrMalformed is matched by the error of [Content] for a body that is not what its Content-Encoding
// says.
var ErrMalformed = errors.New("the request body cannot be decompressed")

// Content returns the body of r as [Bytes] does, decompressed if its Content-Encoding is gzip or
// deflate: two compressions of one content have different bytes. The next reader of r.Body still
// gets the body as it came. limit, or that of [Limit], counts for the body and for its content.
//
// A body that does not begin like its coding is returned as it is: middleware has decompressed it,
// and left the header. So is a body with more than one coding, or another one.
//
// An error that is not of Bytes matches [ErrTooLarge] or [ErrMalformed]. With ErrMalformed, the
// bytes are the body as it came.
func Content(r *http.Request, limit int64) ([]byte, error) {
	data, err := Bytes(r, limit)
	b, ok := r.Body.(*body)
	if err != nil || !ok {
		return data, err
	}
	open := openerOf(r.Header["Content-Encoding"], data)
	if open == nil {
		return data, nil
	}
	if b.limit > 0 {
		limit = b.limit
	}
	if b.content == nil {
		content, err := decompress(open, data, limit)
		if errors.Is(err, ErrMalformed) {
			return data, err
		}
		if err != nil {
			return nil, err
		}
		b.content = content
	}
	if int64(len(b.content)) > limit {
		return nil, tooLarge(limit)
	}
	return b.content, nil
}

type opener func(compressed io.Reader) (io.Reader, error)

// openerOf returns the opener of the coding of data, nil if Content returns it as it is.
func openerOf(codings []string, data []byte) opener {
	if len(codings) != 1 || len(data) < 2 {
		return nil
	}
	switch strings.ToLower(codings[0]) {
	case "gzip", "x-gzip": // RFC 9110, section 8.4.1.3
		if data[0] == 0x1f && data[1] == 0x8b {
			return func(z io.Reader) (io.Reader, error) { return gzip.NewReader(z) }
		}
	case "deflate": // in the format of zlib: RFC 9110, section 8.4.1.2
		if data[0]&0x0f == 8 && (uint(data[0])<<8|uint(data[1]))%31 == 0 {
			return func(z io.Reader) (io.Reader, error) { return zlib.NewReader(z) }
		}
	}
	return nil
}

// decompress returns the content of data, which is not nil without an error.
func decompress(open opener, data []byte, limit int64) ([]byte, error) {
	from := bytes.NewReader(data)
	z, err := open(from)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	content, err := io.ReadAll(io.LimitReader(z, min(limit, math.MaxInt64-1)+1))
	switch {
	case int64(len(content)) > limit:
		return nil, tooLarge(limit)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	case from.Len() > 0: // which another reader may see
		return nil, fmt.Errorf("%w: %d bytes are left", ErrMalformed, from.Len())
	}
	return content, nil
}
