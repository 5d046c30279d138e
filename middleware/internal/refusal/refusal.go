// Package refusal has the parts of a refusal that do not depend on a guard. A refusal is a problem
// of RFC 9457 or a page.
package refusal

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
