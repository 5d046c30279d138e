package mysqlstore

import (
	"strings"
	"unicode/utf8"
)

// Option is an option of [New] and [Open].
type Option interface{ apply(table *string) }

type tableName string

func (n tableName) apply(table *string) { *table = string(n) }

// WithTable sets the name of the table. If the table is in another database than the
// connections', write "shop.latch_entries". The default is "latch_entries". Names are quoted, so
// they are used exactly as written. WithTable panics if a part of the name is empty, is not
// UTF-8, has a byte 0, ends with a space, or is longer than 48 bytes: the names
// that the store derives from it would be too long.
func WithTable(name string) Option {
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || len(part) > 48 || strings.Contains(part, "\x00") || !utf8.ValidString(part) || strings.HasSuffix(part, " ") {
			panic("mysqlstore: WithTable: " + name + ": each part of the name is UTF-8 of 1 to 48 bytes, none is 0, and the last is no space")
		}
	}
	if strings.Count(name, ".") > 1 {
		panic("mysqlstore: WithTable: " + name + ": at most one database stands before the name")
	}
	return tableName(name)
}
