package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock"
)

// oldest is the oldest server version that the store supports, as server_version_num.
const oldest = 130000

// Check reports a server that cannot be reached or is too old, and a table that is missing,
// lacks columns, or may not be used by the role. Each error names the cure. An error that only an
// operator can fix matches [lock.ErrDenied].
func (s *Store) Check(ctx context.Context) error {
	pool, err := s.ownPool(ctx)
	if err != nil {
		return err
	}
	for _, check := range []func(context.Context, *pgxpool.Pool) error{s.checkServer, s.checkPrivileges, s.checkColumns} {
		if err := check(ctx, pool); err != nil {
			return fmt.Errorf("pgstore: %w", failure.Explain(err))
		}
	}
	return nil
}

func (s *Store) checkServer(ctx context.Context, pool *pgxpool.Pool) error {
	var version int
	var recovery bool
	err := pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()").Scan(&version, &recovery)
	switch {
	case err != nil:
		return err
	case version < oldest:
		return fmt.Errorf("%w: the server is PostgreSQL %d: it has to be %d or later", lock.ErrDenied, version/10000, oldest/10000)
	case recovery:
		return fmt.Errorf("%w: the server is a standby, which cannot be written to: connect to the primary (target_session_attrs=read-write)", lock.ErrDenied)
	default:
		return nil
	}
}

// checkPrivileges returns an error with the statements that give the role what it lacks.
func (s *Store) checkPrivileges(ctx context.Context, pool *pgxpool.Pool) error {
	var role string
	var table []string
	var sequence bool
	if err := pool.QueryRow(ctx, s.statements.lacking).Scan(&role, &table, &sequence); err != nil {
		return err
	}
	var grants []string
	if len(table) > 0 {
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(table, ", "), s.names.table, role))
	}
	if sequence {
		grants = append(grants, fmt.Sprintf("GRANT USAGE ON SEQUENCE %s TO %s", s.names.sequence, role))
	}
	if grants == nil {
		return nil
	}
	return fmt.Errorf("%w: the role lacks privileges: %s", lock.ErrDenied, strings.Join(grants, "; "))
}

// checkColumns fails if the table lacks one.
func (s *Store) checkColumns(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, s.statements.present)
	if hasCode(err, "42703") {
		return fmt.Errorf("%w: the table lacks a column: it is of another version, or not a store's: compare it with Schema, or name another one by WithTable: %w", lock.ErrDenied, err)
	}
	return err
}
