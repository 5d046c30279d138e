package sqlitestore

import (
	"regexp"
	"slices"
	"strings"
)

// token is a quoted text, a comment, a semicolon or a word.
var token = regexp.MustCompile("(?s)'[^']*(?:'|$)|\"[^\"]*(?:\"|$)|`[^`]*(?:`|$)|\\[[^\\]]*(?:\\]|$)|--[^\n]*|/\\*.*?(?:\\*/|$)|;|[\\pL\\d_$]+")

// ends reports whether a text of SQL contains a statement that would end the transaction: COMMIT,
// END, or ROLLBACK without TO. The END of a trigger's body does not count.
func ends(text string) bool {
	var words []string // of one statement
	trigger := false
	for _, t := range append(token.FindAllString(strings.ToUpper(text), -1), ";") {
		if t != ";" {
			if !strings.ContainsAny(t[:1], "'\"`[-/") {
				words = append(words, t)
			}
			continue
		}
		switch first := strings.Join(words[:min(1, len(words))], ""); {
		case first == "COMMIT", first == "END" && !trigger, first == "ROLLBACK" && !slices.Contains(words, "TO"):
			return true
		case first == "END":
			trigger = false
		case first == "CREATE":
			trigger = trigger || slices.Contains(words, "TRIGGER")
		}
		words = nil
	}
	return false
}
