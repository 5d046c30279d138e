package rowstore

import (
	"regexp"
	"strings"
)

var firstWord = regexp.MustCompile(`^[\s(]*([A-Za-z]*)`)

// FirstWord returns the first word of a text of SQL, in upper case. It is "" if a comment is before the word.
func FirstWord(text string) string { return strings.ToUpper(firstWord.FindStringSubmatch(text)[1]) }

// Several reports whether a text of SQL may have several statements: a semicolon stands before its end.
func Several(text string) bool { return strings.Contains(strings.TrimRight(text, "; \t\r\n"), ";") }

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
