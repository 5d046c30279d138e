package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

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
	return strings.NewReplacer(rowstore.DefaultTable+"_fence", n.fence, rowstore.DefaultTable, n.entries).Replace(statement)
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

// Check reports a server that cannot be reached or written to, is too old, is not the one of the work, or
// has settings with which receipts could be lost, and a table that is missing, lacks columns, is not
// InnoDB's, or may not be used by the user. Each error names the cure. An error that an operator has to
// repair matches [lock.ErrDenied].
func (s *Store) Check(ctx context.Context) error {
	return s.withOwn(ctx, rowstore.Later, func(conn *sql.Conn) error {
		for _, check := range []func(context.Context, *sql.Conn) error{s.checkServer, s.checkTables, s.checkWork} {
			if err := check(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	})
}

// unfit returns the error of a server that an operator has to repair.
func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %w: mysqlstore: "+format, append([]any{lock.ErrNotApplied, lock.ErrDenied}, args...)...)
}

func (s *Store) checkServer(ctx context.Context, conn *sql.Conn) error {
	set, err := variables(ctx, conn)
	if err != nil {
		return err
	}
	on := func(name string) bool { return set[name] == "ON" || set[name] == "1" }
	if oldest, ok := supported(set["version"]); !ok {
		return unfit("the server is of version %s: it has to be %s or later", set["version"], oldest)
	}
	if on("log_bin") && set["binlog_format"] == "STATEMENT" {
		return unfit("the server logs statements: set binlog_format to ROW or MIXED")
	}
	for _, role := range replicationRoles {
		if on("rpl_semi_sync_"+role+"_enabled") && set["rpl_semi_sync_"+role+"_wait_point"] == "AFTER_COMMIT" {
			return unfit("a receipt could be read that no replica has: set rpl_semi_sync_%s_wait_point to AFTER_SYNC", role)
		}
	}
	return nil
}

// replicationRoles are the names for the server that replicas follow, in MariaDB and in MySQL.
var replicationRoles = []string{"master", "source"}

// supported reports whether the store supports a server of this version, and returns the oldest
// version that it supports.
func supported(version string) (oldest string, ok bool) {
	parts := strings.SplitN(version+"..", ".", 3)
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	if strings.Contains(version, "MariaDB") {
		return "MariaDB 10.6", major > 10 || major == 10 && minor >= 6
	}
	return "MySQL 8.0", major >= 8
}

// checkTables executes a statement of each kind, which changes no row.
func (s *Store) checkTables(ctx context.Context, conn *sql.Conn) error {
	for _, statement := range append([]string{s.statements.present, s.statements.presentFences}, s.statements.writes...) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for _, table := range []string{s.names.table, s.names.table + "_fence"} {
		var engine string
		err := conn.QueryRowContext(ctx, text(s.statements.engine, s.names.database, table)).Scan(&engine)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // lower_case_table_names may have changed the name
			return err
		}
		if err == nil && engine != "InnoDB" {
			return unfit("the table %s has the engine %s, which has no transactions: ALTER TABLE %s ENGINE = InnoDB", table, engine, table)
		}
	}
	return nil
}

// checkWork finds out whether the work's connections lead to the same server. It does not wait for
// a connection that work is using.
func (s *Store) checkWork(ctx context.Context, conn *sql.Conn) error {
	if used := s.db.Stats(); s.opened != nil || used.MaxOpenConnections > 0 && used.InUse >= used.MaxOpenConnections {
		return nil
	}
	const server = "SELECT CONCAT_WS(' ', @@hostname, @@port, @@datadir)"
	var own, work string
	if err := conn.QueryRowContext(ctx, server).Scan(&own); err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, server).Scan(&work); err != nil {
		return fmt.Errorf("mysqlstore: the database of the work: %w", dialError(err))
	}
	if own != work {
		return unfit("the work's connections lead to another server (%s) than the store's own (%s): give New a configuration of the same server", work, own)
	}
	return nil
}

// Describe is part of [lock.Describer].
func (s *Store) Describe() lock.Description { return lock.Description{Check: s.Check} }
