package mysqlstore

import (
	"context"
	"database/sql"
)

// waits returns an expression that is true if COMMITs wait for a replica. Where semi-synchronous
// replication is not installed, the server does not know the setting, and would refuse a statement
// that asks for it.
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

// awaitReplica returns when the replica has all earlier commits: it commits an unused fence, for
// which the server waits. Without it, a reader could see a commit that no replica has: on a server
// that has recovered from a crash, or after a COMMIT was killed while it waited.
func (s *Store) awaitReplica(ctx context.Context, conn *sql.Conn) error {
	return inTx(ctx, conn, func() error {
		_, err := s.draw(ctx, conn)
		return err
	})
}
