package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// oldest is the oldest server version that the store supports, as server_version_num.
const oldest = 130000

// Check reports a server that cannot be reached or is too old, and a table that is missing,
// lacks columns, or may not be used by the role. Each error names the cure. An error that only an
// operator can fix matches [lock.ErrDenied].
func (s *Store) Check(ctx context.Context) error {
	const server = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()"
	err := s.each(ctx, rowstore.Later, server, checkServer)
	if err == nil {
		err = s.each(ctx, rowstore.Later, s.statements.lacking, s.checkPrivileges)
	}
	if err == nil {
		_, err = s.flag(ctx, rowstore.First, s.statements.present)
	}
	return err
}

func checkServer(rows pgx.Rows) error {
	var version int
	var recovery bool
	switch err := rows.Scan(&version, &recovery); {
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
func (s *Store) checkPrivileges(rows pgx.Rows) error {
	var role string
	var table []string
	var sequence bool
	if err := rows.Scan(&role, &table, &sequence); err != nil {
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
