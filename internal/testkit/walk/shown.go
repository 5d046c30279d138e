package walk

import (
	"regexp"
	"strings"
)

// match looks for the lines that a page shows in what was printed, in their order; there may be
// more. It returns where the last of them ends, and the first that is not there.
func match(shown []string, printed string) (end int, missing string, ok bool) {
	for _, line := range shown {
		if line == "" {
			continue
		}
		at := pattern(line).FindStringIndex(printed[end:])
		if at == nil {
			return end, line, false
		}
		end += at[1]
	}
	return end, "", true
}

var seconds = regexp.MustCompile(`\d+\\\.\d+s\b`) // as QuoteMeta writes them

// pattern is of the lines that are as the page shows it: how long something took may differ,
// and so may what the page leaves out.
func pattern(line string) *regexp.Regexp {
	text := strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`)
	return regexp.MustCompile(`(?m)^` + seconds.ReplaceAllLiteralString(text, `\d+\.\d+s`) + `[ \r]*(?:\n|\z)`)
}
