package rowstore

import (
	"regexp"
	"strings"
)

// Statements returns the words, in upper case, of each statement in a text of SQL. token matches a quoted
// text, a comment, a semicolon or a word of a database.
func Statements(token *regexp.Regexp, text string) (all [][]string) {
	var words []string
	for _, t := range append(token.FindAllString(strings.ToUpper(text), -1), ";") {
		switch {
		case t == ";":
			all = append(all, words)
			words = nil
		case !strings.ContainsAny(t[:1], "'\"`[#-/"):
			words = append(words, t)
		}
	}
	return all
}
