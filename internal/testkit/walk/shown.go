package walk

import (
	"regexp"
	"strings"
)

// match looks for the lines that a page shows in the output, in their order. The output may have
// more lines. match returns the end of the last line that it found, and the first line that is
// missing.
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

// pattern returns the pattern of the output for a line of a page: durations may differ, and "..."
// stands for any text.
func pattern(line string) *regexp.Regexp {
	text := strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`)
	return regexp.MustCompile(`(?m)^` + seconds.ReplaceAllLiteralString(text, `\d+\.\d+s`) + `[ \r]*(?:\n|\z)`)
}
