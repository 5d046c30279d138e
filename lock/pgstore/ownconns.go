package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// ownParameters replace session parameters that a pool, a role or a database may set for the work.
// With such parameters, the store's own statements could fail, or end before the time of their
// callers is over. A wait for a lock has a bound, in case the driver's request to cancel is lost, or
// comes before its statement.
var ownParameters = [][2]string{
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"statement_timeout", "0"},
	{"transaction_timeout", "0"}, // since PostgreSQL 17
	{"lock_timeout", "5s"},
	{"bytea_output", "hex"}, // pgx reads no other
}

// openOwn returns a pool for the store's own connections, which dials on its first use.
func openOwn(ctx context.Context, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
	for _, p := range ownParameters {
		if _, ok := cfg.ConnConfig.RuntimeParams[p[0]]; ok {
			cfg.ConnConfig.RuntimeParams[p[0]] = p[1]
		}
	}
	if c := cfg.ConnConfig; c.ValidateConnect == nil && len(c.Fallbacks) > 0 {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary // a standby serves none of the calls
	}
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = rowstore.OwnConnections, 0, 0
	cfg.ShouldPing = PingIdle()
	cfg.AfterRelease = nil // it may reset the session, which no work has used
	hook := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if hook != nil {
			if err := hook(ctx, c); err != nil {
				return err
			}
		}
		if c.ConnectTimeout <= 0 || c.ConnectTimeout > rowstore.LongestWait { // a dial into silence has one of few places
			c.ConnectTimeout = rowstore.LongestWait
		}
		return nil
	}
	prepareSessions(cfg)
	noteWarnings(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	return pool, nil
}

// prepareSessions sets ownParameters in each session, after the pool's own hook. It does not change
// a session behind PgBouncer, which also serves other clients. There, the number of the server's
// process differs from the number at the start of the connection.
func prepareSessions(cfg *pgxpool.Config) {
	values := make([]string, len(ownParameters))
	for i, p := range ownParameters {
		values[i] = "(" + literal(p[0]) + "," + literal(p[1]) + ")"
	}
	set := "SELECT set_config(own.name, own.value, false) FROM (VALUES " + strings.Join(values, ",") +
		") AS own (name, value) JOIN pg_settings USING (name) WHERE pg_backend_pid() = "
	hook := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if hook != nil {
			if err := hook(ctx, conn); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the pool itself would wait without end
		defer cancel()
		_, err := conn.PgConn().Exec(ctx, fmt.Sprint(set, conn.PgConn().PID())).ReadAll()
		return err
	}
}

// The keys of what the store notes in the custom data of a connection.
const (
	markKey     = "latch_mark"     // see session.setMark
	preparesKey = "latch_prepares" // it may prepare statements
	warnedKey   = "latch_warned"   // the server has warned
)

// noteWarnings notes that the server has warned that an operator has ended the wait of a commit for its
// standby. Other warnings, such as one that the database is due for a VACUUM, say nothing about a commit.
func noteWarnings(cfg *pgx.ConnConfig) {
	hook := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" { // the function of the server
			conn.CustomData()[warnedKey] = true
		}
		if hook != nil {
			hook(conn, n)
		}
	}
}

// warned returns an error if the server has warned of the end of a wait since conn was acquired.
func warned(conn *pgxpool.Conn) error {
	if conn.Conn().PgConn().CustomData()[warnedKey] == nil {
		return nil
	}
	return errWarned
}

// errWarned is the error of a COMMIT whose wait for the standby was ended by an operator.
var errWarned = errors.New("pgstore: COMMIT was answered with a warning")

// ownPool returns the store's own connections.
func (s *Store) ownPool(ctx context.Context) (*pgxpool.Pool, error) {
	if s.closed.Load() {
		return nil, failure.NotApplied(rowstore.ErrClosed)
	}
	if pool := s.pool.Load(); pool != nil {
		return pool, nil
	}
	select { // not a mutex: learning the settings may take a while
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: pgstore: %w", lock.ErrNotApplied, context.Cause(ctx))
	}
	if pool := s.pool.Load(); pool != nil {
		return pool, nil
	}
	cfg, err := s.config(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	pool, err := openOwn(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	s.pool.Store(pool)
	if s.closed.Load() { // after Close has looked for the pool
		pool.Close()
	}
	return pool, nil
}

// acquire returns one of the store's own connections.
func (s *Store) acquire(ctx context.Context, r rowstore.Rank) (*pgxpool.Conn, error) {
	pool, err := s.ownPool(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := rowstore.Acquire(ctx, &s.calls, &s.gate, r, func() (*pgxpool.Conn, error) { return s.connect(ctx, pool) })
	if err != nil { // nothing was sent
		return nil, failure.NotApplied(err)
	}
	delete(conn.Conn().PgConn().CustomData(), warnedKey)
	return conn, nil
}

// connect returns a connection of pool. If the server rejects the settings of a new connection, connect
// tries other settings, if there are any.
func (s *Store) connect(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err == nil || !rejected(err) || s.renew == nil {
		return conn, err
	}
	var again *pgxpool.Conn
	renewErr := s.renew(ctx, func() (err error) {
		again, err = pool.Acquire(ctx)
		return err
	})
	if renewErr != nil {
		return nil, errors.Join(err, renewErr)
	}
	return again, nil
}

// giveBack ends the use of a connection, whose call has ended with err. A connection to a standby
// leaves the pool: the next one may lead to the primary. So does a connection that was closed because a
// call had no answer: pgx may take a quarter of a minute to end it, and would count it as used until then.
func (s *Store) giveBack(conn *pgxpool.Conn, err error) {
	defer s.gate.Leave()
	if conn.Conn().IsClosed() || hasCode(err, "25006") {
		hangUp(conn.Hijack())
	} else {
		conn.Release()
	}
}

// hangUp closes a connection without a message to the server, for which the driver may wait. If the
// driver has closed the connection, hangUp leaves the rest to it: the driver asks the server to
// cancel the statement, and PgBouncer ignores that once the connection is gone. The statement, which
// may wait for a lock, would keep a session of the server.
func hangUp(conn *pgx.Conn) {
	if !conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
}

// silence bounds the wait for the answer of a connection that was idle.
const silence = time.Second

// firstTry returns a context for one attempt within ctx: a third of the time left, at most silence.
func firstTry(ctx context.Context) (context.Context, context.CancelFunc) {
	d := silence
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)/3)
	}
	return context.WithTimeout(ctx, d)
}

// PingIdle returns a function for the ShouldPing of one [pgxpool.Config]. [Open] sets it. Set it
// for the pool that you pass to [New], unless no network can drop idle connections without an end,
// as a NAT and a failed node do:
//
//	cfg.ShouldPing = pgstore.PingIdle()
//
// It asks a connection that was idle for a second whether it is alive, and closes it if it does not
// answer within a second, or within a third of the caller's time if that is less. It then also closes
// the connections that were idle meanwhile, without asking them. The pool itself would wait for
// each of them until the time of the caller is over, and count it as used for 15 seconds more.
func PingIdle() func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
	var latest atomic.Int64 // moment of the latest silence
	return func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration <= time.Second {
			return false
		}
		if used := time.Now().Add(-p.IdleDuration).UnixNano(); used > latest.Load() {
			first, cancel := firstTry(ctx)
			defer cancel()
			if p.Conn.Ping(first) == nil {
				return false
			}
			if first.Err() != nil {
				latest.Store(time.Now().UnixNano())
			}
		}
		_ = p.Conn.PgConn().Conn().Close()
		return true // the pool's own ping fails at once
	}
}
