package sqlitestore

import (
	"strings"
	"unicode/utf8"
)

// Option is an option of [New] and [Open].
type Option interface{ apply(table *string) }

type tableName string

func (n tableName) apply(table *string) { *table = string(n) }

// WithTable sets the name of the table, "latch_entries" by default. The name is quoted, so it is
// used exactly as written. Stores with different tables in one file share no entries. It panics if
// the name is empty, is not UTF-8, has a byte 0, or begins with "sqlite_", as SQLite's own tables
// do.
func WithTable(name string) Option {
	if name == "" || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || strings.HasPrefix(strings.ToLower(name), "sqlite_") {
		panic("sqlitestore: WithTable: " + name + ": the name is UTF-8 without a byte 0, not empty, and does not begin with sqlite_")
	}
	return tableName(name)
}
