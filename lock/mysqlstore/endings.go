package mysqlstore

import (
	"regexp"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// kind is the effect of a text on the work's transaction.
type kind uint8

const (
	plain   kind = iota // none of its statements ends it
	unclear             // one of them may end it, such as CALL
	ending              // one of them ends it, or changes the clock of the receipt
)

// word matches a quoted text, a comment, a semicolon or a word.
var word = regexp.MustCompile("(?s)'(?:[^'\\\\]|\\\\.)*(?:'|$)|\"(?:[^\"\\\\]|\\\\.)*(?:\"|$)|`[^`]*(?:`|$)|--(?:[\\s\\x00-\\x1f][^\n]*|$)|#[^\n]*|/\\*.*?(?:\\*/|$)|;|[\\pL\\d_$@]+")

// plainWords are the first words of statements that never commit. A word that is in neither list
// is unclear.
var plainWords = strings.Fields(`SELECT INSERT UPDATE DELETE REPLACE WITH VALUES VALUE TABLE SET SHOW EXPLAIN DESCRIBE DESC
	SAVEPOINT RELEASE DO USE HANDLER PREPARE DEALLOCATE KILL CHECKSUM HELP`)

// endingWords are the first words of statements that commit the statements before them, or roll
// them back.
var endingWords = strings.Fields(`COMMIT ROLLBACK BEGIN START ALTER CREATE DROP TRUNCATE RENAME GRANT REVOKE LOCK UNLOCK ANALYZE
	OPTIMIZE REPAIR CHECK FLUSH RESET CACHE INSTALL UNINSTALL CHANGE STOP PURGE XA IMPORT`)

// endingSettings are the settings that work must not change, and DEFAULT ROLE, which commits.
var endingSettings = []string{"AUTOCOMMIT", "PASSWORD", "TIMESTAMP", "ROLE"}

// kindOf returns the kind of a text of SQL, which may contain several statements. It returns
// unclear if the server's settings or version decide which parts are quoted or comments.
func kindOf(text string) kind {
	executes := strings.Contains(text, "/*!") || strings.Contains(text, "/*M!") || strings.Contains(text, "/*m!")
	several := rowstore.Several(text)
	if first := rowstore.FirstWord(text); !executes && !several && first != "SET" && slices.Contains(plainWords, first) {
		return plain // without a look at the rest, which may have megabytes
	}
	how := plain
	if executes || several && strings.ContainsAny(text, `\"`) {
		how = unclear
	}
	statements := rowstore.Statements(word, text)
	if slices.ContainsFunc(statements, func(s []string) bool { return len(s) > 0 && s[0] == "SET" }) {
		statements = rowstore.Statements(word, strings.ReplaceAll(text, "`", "")) // the names of settings may be quoted
	}
	for _, statement := range statements {
		how = max(how, kindOfStatement(statement))
	}
	return how
}

func kindOfStatement(statement []string) kind {
	if len(statement) == 0 {
		return plain
	}
	first := statement[0]
	switch of := strings.TrimPrefix(strings.Join(statement[1:min(5, len(statement))], " ")+" ", "OR REPLACE "); {
	case first == "ROLLBACK" && strings.HasPrefix(strings.TrimPrefix(of, "WORK "), "TO "),
		(first == "CREATE" || first == "DROP") && strings.HasPrefix(of, "TEMPORARY TABLE "):
		return plain
	case first == "SET" && strings.HasPrefix(of, "STATEMENT "):
		return unclear // FOR any statement
	case first == "SET" && slices.ContainsFunc(statement, func(w string) bool { return slices.Contains(endingSettings, strings.TrimLeft(w, "@")) }):
		return ending
	case slices.Contains(endingWords, first):
		return ending
	case slices.Contains(plainWords, first):
		return plain
	default:
		return unclear
	}
}
