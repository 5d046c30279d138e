package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Schema makes the table of a store, unless it exists, for migration tools. With [WithTable],
// replace the name. Run it once, and not at each start: CREATE
// INDEX IF NOT EXISTS locks the table before it checks, and claims wait behind it.
// [Store.Migrate] checks first.
//
// The index is over sweep_at, which a renewal does not change, so that renewals can be heap-only
// updates.
const Schema = createTable + createIndex + createSequence

const (
	createTable = `
CREATE TABLE IF NOT EXISTS latch_entries (
	key         bytea       PRIMARY KEY,
	token       bytea       NOT NULL, -- of the claim; empty in the note of a claim
	attempt     integer     NOT NULL,
	fingerprint bytea       NOT NULL,
	owner       bytea       NOT NULL,
	fence       bigint      NOT NULL,
	ends_at     timestamptz NOT NULL, -- of the lease, or of the receipt
	linger      bigint      NOT NULL, -- microseconds for which a lease that has ended is remembered
	receipt     bytea,                -- NULL while it is not settled
	sweep_at    timestamptz NOT NULL  -- when the clean-up looks at the row
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);`

	createIndex = `
CREATE INDEX IF NOT EXISTS latch_entries_sweep_at ON latch_entries (sweep_at);`

	createSequence = `
CREATE SEQUENCE IF NOT EXISTS latch_entries_fence;
`

	// present reports for the table, the index and the sequence whether each
	// exists. The catalogs are read without a lock on the table. The index may
	// have any name.
	present = `
SELECT to_regclass('latch_entries') IS NOT NULL,
	EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = to_regclass('latch_entries') AND a.attname = 'sweep_at' AND i.indisvalid AND i.indpred IS NULL),
	to_regclass('latch_entries_fence') IS NOT NULL`
)

// names has the quoted names of a store's table, index and sequence.
type names struct{ table, index, sequence string }

// namesOf quotes name, which may have a schema before it: "shop.latch_entries".
func namesOf(name string) names {
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	with := func(suffix string) string {
		return pgx.Identifier(append(append([]string(nil), parts[:len(parts)-1]...), last+suffix)).Sanitize()
	}
	return names{table: with(""), index: pgx.Identifier{last + "_sweep_at"}.Sanitize(), sequence: with("_fence")}
}

// in replaces the names of Schema in a statement by the names of the store.
func (n names) in(statement string) string {
	return strings.NewReplacer(
		"'"+rowstore.DefaultTable+"_fence'", literal(n.sequence),
		"'"+rowstore.DefaultTable+"'", literal(n.table),
		rowstore.DefaultTable+"_sweep_at", n.index,
		rowstore.DefaultTable+"_fence", n.sequence,
		rowstore.DefaultTable, n.table,
	).Replace(statement)
}

// literal quotes a constant so that it is valid with any value of standard_conforming_strings.
func literal(text string) string {
	return ` E'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + `'`
}

// migrationLock keeps two processes from migrating at the same time: CREATE IF NOT EXISTS would
// fail.
const migrationLock = 0x6c61746368 // "latch"

// Migrate makes the store's table, index and sequence, if one is missing. Many processes may
// call it at once, and at each start. If none is missing, it only checks: the check needs no
// CREATE privilege, and holds up no claim.
func (s *Store) Migrate(ctx context.Context) error {
	pool, err := s.ownPool(ctx)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		ddl, err := s.missing(ctx, tx)
		if err != nil || ddl == "" {
			return err
		}
		if _, err = tx.Exec(ctx, "SELECT set_config('lock_timeout', '0', true), pg_advisory_xact_lock($1)", int64(migrationLock)); err == nil {
			ddl, err = s.missing(ctx, tx) // another process may have made the table meanwhile
		}
		if err == nil {
			_, err = tx.Exec(ctx, ddl)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("pgstore: migrating: %w", failure.Explain(err))
	}
	return nil
}

// missing returns the statements that make the missing objects, "" if none is missing.
func (s *Store) missing(ctx context.Context, tx pgx.Tx) (ddl string, err error) {
	var table, index, sequence bool
	err = tx.QueryRow(ctx, s.names.in(present)).Scan(&table, &index, &sequence)
	for _, part := range []struct {
		there bool
		ddl   string
	}{{table, createTable}, {index, createIndex}, {sequence, createSequence}} {
		if !part.there {
			ddl += part.ddl
		}
	}
	return s.names.in(ddl), err
}

// oldest is the oldest server version that the store supports, as server_version_num.
const oldest = 130000

// Check reports a server that cannot be reached or is too old, and a table that is missing,
// lacks columns, or may not be used by the role. Each error names the cure. An error that only an
// operator can fix matches [lock.ErrDenied].
func (s *Store) Check(ctx context.Context) error {
	const server = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), '\\x01'::bytea"
	err := s.each(ctx, rowstore.Later, server, checkServer)
	if err == nil {
		err = s.each(ctx, rowstore.Later, s.statements.lacking, checkPrivileges)
	}
	if err == nil {
		_, err = s.flag(ctx, rowstore.First, s.statements.present)
	}
	return err
}

func checkServer(rows pgx.Rows) error {
	var version int
	var recovery bool
	switch err := rows.Scan(&version, &recovery, nil); {
	case err != nil:
		return err
	case version < oldest:
		return fmt.Errorf("%w: the server is PostgreSQL %d: it has to be %d or later", lock.ErrDenied, version/10000, oldest/10000)
	case recovery:
		return fmt.Errorf("%w: the server is a standby, which cannot be written to: connect to the primary (target_session_attrs=read-write)", lock.ErrDenied)
	case string(rows.RawValues()[2]) == `\001`:
		return fmt.Errorf("%w: bytea_output is escape: a pool that prepares no statements needs hex", lock.ErrDenied)
	default:
		return nil
	}
}

// checkPrivileges returns an error with the statements that give the role what it lacks.
func checkPrivileges(rows pgx.Rows) error {
	var grants string
	if err := rows.Scan(&grants); err != nil || grants == "" {
		return err
	}
	return fmt.Errorf("%w: the role lacks privileges: %s", lock.ErrDenied, grants)
}
