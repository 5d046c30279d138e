package pgstore

import (
	"strings"
	"unicode/utf8"
)

// Option is an option of [New], [NewSQL] and [Open].
type Option interface{ apply(table *string) }

type tableName string

func (n tableName) apply(table *string) { *table = string(n) }

// WithTable sets the name of the table. If the search path does not find the table, write
// "shop.latch_entries". The default is "latch_entries". Names are quoted, so they are used
// exactly as written. WithTable panics if a part of the name is empty, is not UTF-8, has a byte 0,
// or is longer than 48 bytes: PostgreSQL would truncate the names that the store derives from it.
func WithTable(name string) Option {
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || len(part) > 48 || strings.ContainsRune(part, 0) || !utf8.ValidString(part) {
			panic("pgstore: WithTable: " + name + ": each part of the name is UTF-8 of 1 to 48 bytes, and none is 0")
		}
	}
	if strings.Count(name, ".") > 1 {
		panic("pgstore: WithTable: " + name + ": at most one schema stands before the name")
	}
	return tableName(name)
}
