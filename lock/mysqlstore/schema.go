package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// defaultTable is the name in Schema.
const defaultTable = "latch_entries"

// Schema makes the tables of a store, unless they exist, for migration tools. With [WithTable],
// replace the name. [Store.Migrate] first checks whether the tables exist, and then needs no CREATE
// privilege. Times are microseconds since 1970.
const Schema = createEntries + ";\n" + createFences + ";\n"

const (
	createEntries = `
CREATE TABLE IF NOT EXISTS latch_entries (
	lock_key    VARBINARY(1024) NOT NULL PRIMARY KEY,
	token       VARBINARY(255)  NOT NULL,
	attempt     BIGINT          NOT NULL,
	fingerprint BLOB            NOT NULL,
	owner       BLOB            NOT NULL,
	fence       BIGINT          NOT NULL, -- 0 if there is none
	settled     TINYINT         NOT NULL, -- 1 if there is a receipt
	receipt     LONGBLOB,
	ends_at     BIGINT          NOT NULL, -- when the lease or the receipt ends
	over_at     BIGINT          NOT NULL, -- when the entry ends, after its linger
	INDEX over_at (over_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`

	createFences = `
CREATE TABLE IF NOT EXISTS latch_entries_fence (
	fence BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB`
)

// names has the names of a store's tables.
type names struct {
	database       string // "" if it is not known
	table          string
	entries, fence string // quoted, with the database
}

// namesOf quotes name, which may have a database before it. The work may have switched its
// connection to another database, so the statements name the database if it is known.
func namesOf(name, database string) names {
	n := names{database: database, table: name}
	if before, after, ok := strings.Cut(name, "."); ok {
		n.database, n.table = before, after
	}
	quoted := func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
	prefix := ""
	if n.database != "" {
		prefix = quoted(n.database) + "."
	}
	n.entries, n.fence = prefix+quoted(n.table), prefix+quoted(n.table+"_fence")
	return n
}

// in replaces the names of Schema in a statement by the names of the store.
func (n names) in(statement string) string {
	return strings.NewReplacer(defaultTable+"_fence", n.fence, defaultTable, n.entries).Replace(statement)
}

// Migrate makes the store's tables, if one is missing. Many processes may call it at once, and
// at each start: if none is missing it only reads.
func (s *Store) Migrate(ctx context.Context) error {
	err := s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		for _, table := range [][2]string{{s.statements.present, createEntries}, {s.statements.presentFences, createFences}} {
			_, err := conn.ExecContext(ctx, table[0])
			if number(err) == errNoSuchTable {
				_, err = conn.ExecContext(ctx, s.names.in(table[1]))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mysqlstore: migrating: %w", err)
	}
	return nil
}
