package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// settings configure the store's own connections.
type settings interface {
	// config returns the configuration of their pool.
	config(ctx context.Context) (*pgxpool.Config, error)

	// renew looks for other settings after the server has rejected the current ones. changed
	// reports whether there are any.
	renew(ctx context.Context) (changed bool, err error)
}

// poolSettings come from a pool of pgx, whose hooks, except AfterRelease, are called for each connection.
type poolSettings struct{ pool *pgxpool.Pool }

func (p poolSettings) config(context.Context) (*pgxpool.Config, error) { return p.pool.Config(), nil }

func (p poolSettings) renew(context.Context) (bool, error) { return false, nil }

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
}

// openOwn returns a pool for the store's own connections, which dials on its first use.
func openOwn(ctx context.Context, of settings) (*pgxpool.Pool, error) {
	cfg, err := of.config(ctx)
	if err != nil {
		return nil, err
	}
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
	prepareSessions(cfg)
	noteWarnings(cfg.ConnConfig)
	reportPanics(cfg)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	return pool, nil
}

// sessionTime bounds the statement that sets up a session.
const sessionTime = 2 * time.Second

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
		ctx, cancel := context.WithTimeout(ctx, sessionTime) // the pool itself would wait without end
		defer cancel()
		_, err := conn.PgConn().Exec(ctx, fmt.Sprint(set, conn.PgConn().PID())).ReadAll()
		return err
	}
}

// warnedKey is the key of a warning in the custom data of a connection.
const warnedKey = "latch_warned"

// waitEnded is the function of the server that warns when an operator has ended the wait of a commit for
// its standby. Other warnings, such as one that the database is due for a VACUUM, say nothing about a
// commit.
const waitEnded = "SyncRepWaitForLSN"

// noteWarnings notes that the server has warned of the end of a wait.
func noteWarnings(cfg *pgx.ConnConfig) {
	hook := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == waitEnded {
			conn.CustomData()[warnedKey] = true
		}
		if hook != nil {
			hook(conn, n)
		}
	}
}

// reportPanics turns the panic of a hook into a refusal of the connection. If a hook did not
// return, the pool would count its connection as used for ever.
func reportPanics(cfg *pgxpool.Config) {
	prepare, acquire := cfg.PrepareConn, cfg.BeforeAcquire //nolint:staticcheck // a pool may have the older one
	if prepare == nil && acquire == nil {
		return
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (ok bool, err error) {
		defer func() {
			if v := recover(); v != nil {
				ok, err = false, fmt.Errorf("the pool's hook PrepareConn or BeforeAcquire panicked: %v", v)
			}
		}()
		if prepare == nil {
			return acquire(ctx, conn), nil
		}
		return prepare(ctx, conn)
	}
}

// connect returns a connection of pool. If the server rejects the settings of a new connection,
// connect tries once more with other settings, if there are any.
func (s *Store) connect(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err == nil || !rejected(err) {
		return conn, err
	}
	if changed, renewErr := s.settings.renew(ctx); !changed {
		return nil, errors.Join(err, renewErr)
	}
	return pool.Acquire(ctx)
}
