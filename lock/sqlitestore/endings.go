package sqlitestore

import (
	"regexp"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// token is a quoted text, a comment, a semicolon or a word.
var token = regexp.MustCompile("(?s)'[^']*(?:'|$)|\"[^\"]*(?:\"|$)|`[^`]*(?:`|$)|\\[[^\\]]*(?:\\]|$)|--[^\n]*|/\\*.*?(?:\\*/|$)|;|[\\pL\\d_$]+")

// ends reports whether a text of SQL contains a statement that would end the transaction: COMMIT,
// END, or ROLLBACK without TO. The END of a trigger's body does not count.
func ends(text string) bool {
	switch rowstore.FirstWord(text) {
	case "", "COMMIT", "END", "ROLLBACK":
	default:
		if !rowstore.Several(text) {
			return false // without a look at the rest, which may have megabytes
		}
	}
	trigger := false
	for _, words := range rowstore.Statements(token, text) {
		switch first := strings.Join(words[:min(1, len(words))], ""); {
		case first == "COMMIT", first == "END" && !trigger, first == "ROLLBACK" && !slices.Contains(words, "TO"):
			return true
		case first == "END":
			trigger = false
		case first == "CREATE":
			trigger = trigger || slices.Contains(words, "TRIGGER")
		}
	}
	return false
}
