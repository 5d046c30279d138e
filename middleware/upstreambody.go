package middleware

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// readWhole reads the body of an answer into memory. It leaves a stream, and a body longer than
// limit, to the caller. It fails if the body is cut off.
func readWhole(answer *http.Response, limit int64) error {
	if answer.Body == nil || answer.ContentLength > limit || streams(answer) {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err != nil {
		return errors.Join(fmt.Errorf("middleware: the answer of another service was cut off: %w", err), answer.Body.Close())
	}
	if int64(len(body)) > limit {
		answer.Body = &begun{io.MultiReader(bytes.NewReader(body), answer.Body), answer.Body}
		return nil
	}
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if answer.ContentLength < 0 && len(answer.Trailer) == 0 { // only a body without a length can have trailers
		answer.ContentLength, answer.TransferEncoding = int64(len(body)), nil
		if answer.Header == nil {
			answer.Header = make(http.Header)
		}
		answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return nil
}

// begun is a body that was read in part.
type begun struct {
	io.Reader
	io.Closer
}

// streams reports whether the answer may go on for long, or its end cannot be distinguished from a
// broken connection.
func streams(answer *http.Response) bool {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return answer.StatusCode == http.StatusSwitchingProtocols ||
		media == "text/event-stream" || strings.HasPrefix(media, "application/grpc") ||
		strings.EqualFold(answer.Header.Get("X-Accel-Buffering"), "no") ||
		answer.ProtoMajor == 1 && answer.ContentLength < 0 && !answer.Uncompressed && !slices.Contains(answer.TransferEncoding, "chunked")
}
