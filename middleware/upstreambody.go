package middleware

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// readWhole reads the body of an answer into memory. It leaves a stream, and a body longer than
// limit, to the caller. It fails if the body is cut off.
func readWhole(answer *http.Response, limit int64) error {
	if answer.Body == nil || answer.ContentLength > limit || streams(answer) {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, min(limit, math.MaxInt64-1)+1))
	if err != nil {
		return errors.Join(fmt.Errorf("middleware: the answer of another service was cut off: %w", err), answer.Body.Close())
	}
	if int64(len(body)) > limit {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), answer.Body), answer.Body}
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

// watch notes, in the run and in the runs of the guards around it, if a stream that is passed on is cut
// off, or may be: its end must not count as the end of a whole answer.
func (x *run) watch(answer *http.Response) {
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols || answer.Body == nil || !streams(answer):
	case endsWithConnection(answer):
		x.markCutOff()
	default:
		answer.Body = &watched{answer.Body, x}
	}
}

// watched is the body of a stream.
type watched struct {
	io.ReadCloser
	run *run
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.run.markCutOff()
	}
	return n, err
}

// streams reports whether the answer may go on for long, or its end cannot be distinguished from a
// broken connection.
func streams(answer *http.Response) bool {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return answer.StatusCode == http.StatusSwitchingProtocols ||
		media == "text/event-stream" || record.StatusAtEnd(media) ||
		strings.EqualFold(answer.Header.Get("X-Accel-Buffering"), "no") || endsWithConnection(answer)
}

// endsWithConnection reports whether the body has neither a length nor chunks.
func endsWithConnection(answer *http.Response) bool {
	return answer.ProtoMajor == 1 && answer.ContentLength < 0 && !answer.Uncompressed && !slices.Contains(answer.TransferEncoding, "chunked")
}
