package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
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
		err = rowstore.CommitError{Err: err}
	} else {
		return nil
	}
	if _, failed := conn.ExecContext(ctx, rollback); failed != nil {
		discard(conn)
	}
	return err
}
