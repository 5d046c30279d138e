package client

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// maxProblem is the most bytes of a problem. Problems of httplatch are far shorter.
const maxProblem = 64 << 10

// kindBase begins the types of httplatch.
const kindBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// Problem is a refusal in the format of RFC 9457. It is an error, for callers that return
// one.
type Problem struct { //nolint:errname // RFC 9457 has this name
	Status     int           // of the response, whatever the body says
	Type       string        // a URI; "about:blank" if the body has none
	Title      string        // "" if the body has none
	Detail     string        // "" if the body has none
	RetryAfter time.Duration // 0 if there is no Retry-After header, or it is not valid
}

// Kind returns the last part of the Type of a refusal by httplatch, such as
// "outcome-unknown", and "" for all others.
// https://github.com/httplatch/httplatch/blob/main/docs/problems.md lists the kinds, and
// what a client should do.
func (p *Problem) Kind() string {
	kind, _ := strings.CutPrefix(p.Type, kindBase)
	if kind == p.Type {
		return ""
	}
	return kind
}

// Error returns the status, the title or else its usual text, and the type.
func (p *Problem) Error() string {
	title := p.Title
	if title == "" {
		title = http.StatusText(p.Status)
	}
	return fmt.Sprintf("client: %d: %s (%s)", p.Status, title, p.Type)
}

// ParseProblem returns the problem in resp. ok is false if its Content-Type is not
// application/problem+json, or its body is not a JSON object, is longer than 64 KiB, or
// cannot be read. It reads at most 64 KiB and one byte of resp.Body, and puts them back:
// the caller can read the whole body afterwards, and has to close it, in either case.
// Reading takes as long as the server does: the context of the request limits it. It is
// not safe for concurrent use of one response.
func ParseProblem(resp *http.Response) (p *Problem, ok bool) {
	if !saysProblem(resp) {
		return nil, false
	}
	body, err := readStart(resp, maxProblem)
	if err == nil && len(body) <= maxProblem {
		p, ok = decodeProblem(resp, body)
	}
	return p, ok
}

func saysProblem(resp *http.Response) bool {
	if resp == nil || resp.Body == nil {
		return false
	}
	// The usual type, without parameters, need not be parsed.
	const problemType = "application/problem+json"
	value := resp.Header.Get("Content-Type")
	if value == problemType {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(value)
	return err == nil && mediaType == problemType
}

func decodeProblem(resp *http.Response, body []byte) (p *Problem, ok bool) {
	var members map[string]json.RawMessage
	// The text null leaves members nil, too.
	if _ = json.Unmarshal(body, &members); members == nil || !json.Valid(body) {
		return nil, false
	}
	p = &Problem{
		Status: resp.StatusCode,
		Type:   text(members["type"]),
		Title:  text(members["title"]),
		Detail: text(members["detail"]),
	}
	if p.Type == "" {
		p.Type = "about:blank"
	}
	p.RetryAfter, _ = retryAfter(resp.Header)
	return p, true
}

// text returns a member that is a string, and "" for any other member: RFC 9457, section 3.1, has
// clients ignore it.
func text(member json.RawMessage) string {
	var s string
	if json.Unmarshal(member, &s) != nil {
		return ""
	}
	return s
}

// readStart reads up to limit+1 bytes of the body, and puts them back, followed by the error with
// which reading ended.
func readStart(resp *http.Response, limit int64) ([]byte, error) {
	start, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	resp.Body = &startedBody{start: start, err: err, rest: resp.Body}
	return start, err
}

// startedBody is a body of which a part has been read.
type startedBody struct {
	start []byte
	err   error // follows start; nil: rest does
	rest  io.ReadCloser
}

func (b *startedBody) Read(p []byte) (int, error) {
	if len(b.start) > 0 {
		n := copy(p, b.start)
		b.start = b.start[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *startedBody) Close() error { return b.rest.Close() }
