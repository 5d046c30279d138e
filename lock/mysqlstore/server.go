package mysqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// server has the settings of a server that the store's statements depend on.
type server struct {
	waits     expression // true if COMMITs wait for a replica
	snapshots bool       // it has innodb_snapshot_isolation
	compounds bool       // it takes several statements in one: it is MariaDB
	packet    int        // max_allowed_packet
}

// server returns the settings of the server of conn. They are read once, and again after the store
// has connected once more, or after a statement that names a setting which has gone.
func (s *Store) server(ctx context.Context, conn *sql.Conn) (*server, error) {
	if known := s.known.Load(); known != nil {
		return known, nil
	}
	set, err := variables(ctx, conn)
	if err != nil {
		return nil, err
	}
	known := &server{waits: "0"}
	// Where semi-synchronous replication is not installed, the server does not know the setting.
	for _, role := range replicationRoles {
		if name := "rpl_semi_sync_" + role + "_enabled"; set[name] != "" {
			known.waits = expression("@@GLOBAL." + name)
		}
	}
	known.compounds = strings.Contains(set["version"], "MariaDB")
	_, known.snapshots = set["innodb_snapshot_isolation"]
	known.packet, _ = strconv.Atoi(set["max_allowed_packet"])
	s.known.Store(known)
	return known, nil
}

// fits returns an error if the server would refuse a statement for its size, and close the connection.
func (is *server) fits(statement string) error {
	const around = 128 // bytes at most that session.together adds
	if is.packet > 0 && len(statement)+around >= is.packet {
		return mysql.ErrPktTooLarge
	}
	return nil
}

// settleInside returns a statement that settles in the transaction of work. It writes a row that a
// renewal or [lock.Commit] may have written after the transaction's snapshot. MySQL writes the newest
// row whatever the isolation, and so does MariaDB without innodb_snapshot_isolation.
func (is *server) settleInside(statement string) string {
	if is.snapshots {
		return "SET STATEMENT innodb_snapshot_isolation = 0 FOR " + statement
	}
	return statement
}

// withServer calls do with the settings of the server of conn, and once more if a setting has gone.
func (s *Store) withServer(ctx context.Context, conn *sql.Conn, do func(*server) error) error {
	for again := true; ; again = false {
		known, err := s.server(ctx, conn)
		if err == nil {
			err = do(known)
		}
		if number(err) != errNoVariable || !again {
			return err
		}
		s.known.Store(nil)
	}
}

func variables(ctx context.Context, conn *sql.Conn) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'log_bin', 'binlog_format', 'innodb_snapshot_isolation', 'max_allowed_packet') OR Variable_name LIKE 'rpl\\_semi\\_sync\\_%'")
	set := make(map[string]string)
	return set, rowstore.EachRow(rows, err, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		set[name] = value
		return err
	})
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
