// Package refusal has the parts of a refusal that do not depend on a guard. A refusal is a problem
// of RFC 9457 or a page. A guard in front of a gateway recognises the refusals of the guarded
// service behind the gateway, because they must not be kept.
package refusal

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"
)

const (
	// KindBase begins the type of each problem. Its kind follows.
	KindBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

	// ProblemType is the media type of a problem.
	ProblemType = "application/problem+json"

	// PageType is the media type of a page.
	PageType = "text/html"

	// PageStart begins each page.
	PageStart = "<!doctype html>\n<html lang=\""

	// PageMark is near the beginning of a page, before all text that a client has sent.
	PageMark = `<meta name="latch-problem" content="`
)

// The longest refusals are shorter.
const (
	maxProblem = 4 << 10
	maxPage    = 64 << 10
	maxHead    = 512 // the head of a page, with its mark
)

// Limit returns the largest size of the body of an answer with this status and these headers, if
// the answer can be a refusal, and otherwise 0. begun is the beginning of the body, as far as it is
// written.
func Limit(status int, contentType, coding []string, begun []byte) int64 {
	switch mediaType(status, contentType, coding) {
	case ProblemType:
		return maxProblem
	case PageType:
		if n := min(len(begun), len(PageStart)); string(begun[:n]) == PageStart[:n] {
			return maxPage
		}
	}
	return 0
}

// Is reports whether an answer is a refusal.
func Is(status int, contentType, coding []string, body []byte) bool {
	limit := Limit(status, contentType, coding, body)
	switch {
	case limit == 0 || int64(len(body)) > limit:
		return false
	case limit == maxPage:
		head := body[:min(len(body), maxHead)]
		return len(head) > len(PageStart) && bytes.Contains(head, []byte(PageMark))
	}
	var members map[string]json.RawMessage // a struct would take "Type" as well
	var name string
	return json.Unmarshal(body, &members) == nil && json.Unmarshal(members["type"], &name) == nil &&
		strings.HasPrefix(name, KindBase)
}

// mediaType returns the media type of an answer if it can be a refusal by its status and headers,
// and otherwise "". It does not recognise a compressed refusal.
func mediaType(status int, contentType, coding []string) string {
	if status < 400 || len(contentType) != 1 || len(coding) > 0 && !strings.EqualFold(coding[0], "identity") {
		return ""
	}
	media, _, err := mime.ParseMediaType(contentType[0])
	if err != nil {
		return ""
	}
	return media
}
