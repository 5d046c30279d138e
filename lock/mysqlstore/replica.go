package mysqlstore

import (
	"context"
	"database/sql"
)

// waits returns the expression that says whether COMMITs wait for a replica. Where
// semi-synchronous replication is not installed, the server does not know the setting, and would
// refuse a statement that asks for it.
func (s *Store) waits(ctx context.Context, conn *sql.Conn) (expression, error) {
	if known := s.semi.Load(); known != nil {
		return *known, nil
	}
	set, err := variables(ctx, conn)
	if err != nil {
		return "", err
	}
	found := expression("0")
	for _, role := range replicationRoles {
		if name := "rpl_semi_sync_" + role + "_enabled"; set[name] != "" {
			found = expression("@@GLOBAL." + name)
		}
	}
	s.semi.Store(&found)
	return found, nil
}

// writeAnything writes within a transaction and changes nothing, so that its COMMIT waits for
// the replica. The replica then has all that was committed before. A server that has recovered
// from a crash shows what no replica has, and so does one whose COMMIT was killed while it
// waited.
func (s *Store) writeAnything(ctx context.Context, conn *sql.Conn) error {
	drawn, err := conn.ExecContext(ctx, s.statements.drawFence)
	if err != nil {
		return err //nolint:wrapcheck // by with
	}
	id, err := drawn.LastInsertId()
	if err == nil {
		_, err = conn.ExecContext(ctx, text(s.statements.dropFence, id))
	}
	return err //nolint:wrapcheck // by with
}
