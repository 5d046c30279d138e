package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// openOwn returns the store's own connections, which are dialled on their first use. It calls dialled
// for each.
func openOwn(cfg *mysql.Config, dialled func()) (*sql.DB, error) {
	cfg = cfg.Clone()
	cfg.ClientFoundRows = false // the count of rows is the count of changes
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	own := sql.OpenDB(ownConnector{connector, dialled})
	own.SetMaxOpenConns(rowstore.OwnConnections)
	own.SetMaxIdleConns(rowstore.OwnConnections)
	own.SetConnMaxIdleTime(idleTime / 2) // before the server ends it
	return own, nil
}

// idleTime is the time without a statement after which the server ends one of the store's own
// sessions. It bounds how long a session keeps a row locked when its COMMIT never arrives and the
// server does not notice that the connection is gone.
const idleTime = 30 * time.Second

// ownSession has the settings of the store's own sessions. The configuration, the user or the
// server may set others for the work: with such settings, the store's statements could fail, wait
// or have another meaning. The waits for locks of rows and of tables are short, so that no claim takes
// effect long after its caller has gone, and no session waits for long.
var ownSession = []string{
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
	"SET SESSION sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, sql_safe_updates = 0, wait_timeout = " + strconv.Itoa(int(idleTime/time.Second)),
	"SET SESSION innodb_snapshot_isolation = 0", // last: MySQL and older servers do not know it
}

// ownConnector sets ownSession in each session.
type ownConnector struct {
	driver.Connector

	dialled func()
}

// Connect is part of [driver.Connector].
func (c ownConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	session := conn.(driver.ExecerContext) //nolint:errcheck,forcetypeassert // the driver's
	for _, statement := range ownSession {
		if _, err := session.ExecContext(ctx, statement, nil); err != nil && number(err) != errNoVariable {
			_ = conn.Close()
			return nil, err
		}
	}
	c.dialled()
	return conn, nil
}

// staleConnections bounds the number of ended connections that a call tries. The call notices that
// the server has ended a connection before it has sent anything.
const staleConnections = rowstore.OwnConnections + 1

// withOwn calls do with one of the store's own connections, and converts its error. do is called
// again if its connection had ended before, and on a new connection after the first that led to a
// server which is no longer the primary.
func (s *Store) withOwn(ctx context.Context, r rowstore.Rank, do func(conn *sql.Conn) error) (err error) {
	demoted := false
	for range staleConnections {
		var conn *sql.Conn
		if conn, err = s.acquire(ctx, r); err != nil { // nothing was sent
			return err
		}
		if err = s.use(ctx, conn, do); errors.Is(err, driver.ErrBadConn) {
			continue
		}
		err = failure.Of(err)
		if demoted || !isDemoted(err) || !errors.Is(err, lock.ErrNotApplied) {
			return err
		}
		demoted = true
	}
	return fmt.Errorf("%w: mysqlstore: %w", lock.ErrNotApplied, rowstore.Classed(err, "connection"))
}

func (s *Store) use(ctx context.Context, conn *sql.Conn, do func(conn *sql.Conn) error) error {
	defer s.gate.Leave()
	defer conn.Close() //nolint:errcheck // its calls have their errors
	err := do(conn)
	if isDemoted(err) || errors.Is(err, context.DeadlineExceeded) {
		discard(conn)
		discardIdle(ctx, s.own)
	}
	return err
}

// discard closes a connection, which the pool would otherwise use again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// discardIdle closes the idle connections of a pool after one of them led to a server that is no
// longer the primary, or that does not answer: the others probably lead there, too.
func discardIdle(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 50*time.Millisecond) // in case another caller was faster
	defer cancel()
	for n := db.Stats().Idle; n > 0 && db.Stats().Idle > 0; n-- {
		if conn, err := db.Conn(ctx); err == nil {
			discard(conn)
		}
	}
}

func (s *Store) acquire(ctx context.Context, r rowstore.Rank) (*sql.Conn, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	conn, err := rowstore.Acquire(ctx, &s.calls, &s.gate, r, func() (*sql.Conn, error) { return s.own.Conn(ctx) })
	if err != nil {
		if s.closed.Load() {
			return nil, failure.NotApplied(rowstore.ErrClosed)
		}
		return nil, fmt.Errorf("%w: mysqlstore: %w", lock.ErrNotApplied, dialError(err))
	}
	return conn, nil
}

// exec runs a statement on one of the store's own connections, and returns how many rows it has
// changed.
func (s *Store) exec(ctx context.Context, r rowstore.Rank, statement string) (changed int64, err error) {
	err = s.withOwn(ctx, r, func(conn *sql.Conn) (err error) {
		changed, err = s.execOn(ctx, conn, statement)
		return err
	})
	return changed, err
}

func (s *Store) execOn(ctx context.Context, conn *sql.Conn, statement string) (changed int64, err error) {
	is, err := s.server(ctx, conn)
	if err == nil {
		err = is.fits(statement)
	}
	if err != nil {
		return 0, err
	}
	return changes(conn.ExecContext(ctx, statement))
}

// changes returns how many rows a statement has changed.
func changes(result driver.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// errUncommitted ends a transaction for which no COMMIT was sent. The transaction has no effect,
// even if its statements arrive late.
var errUncommitted = errors.New("COMMIT was not sent")

// inTx calls do in a transaction on conn. Its COMMIT ends with ctx, unlike the COMMIT of a
// *sql.Tx. A connection that may still be in a transaction is closed, and the server rolls back.
func inTx(ctx context.Context, conn *sql.Conn, do func() error) error {
	_, err := conn.ExecContext(ctx, begin)
	if err == nil {
		err = do()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errUncommitted, err)
	} else if _, err = conn.ExecContext(ctx, "COMMIT"); err != nil {
		err = fmt.Errorf("%w: %w", rowstore.ErrCommit, err)
	} else {
		return nil
	}
	if _, failed := conn.ExecContext(ctx, rollback); failed != nil {
		discard(conn)
	}
	return err
}

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
