//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// postgres is the dialect of PostgreSQL, with PgBouncer before it or not.
type postgres struct {
	bounced bool
	bouncer *pgtest.Bouncer // of a pair
}

func (d *postgres) start(t *testing.T) (h host, db string) {
	t.Helper()
	c := pgtest.Start(t, "restart_after_crash=on")
	if d.bounced {
		d.bouncer = pgtest.PgBouncer(t, c.Addr(), "max_client_conn=1000", "default_pool_size=60", "server_login_retry=1")
	}
	db = c.Database(t)
	makeTables(t, c, db)
	return c, db
}

func makeTables(t *testing.T, c *pgtest.Cluster, db string) {
	t.Helper()
	must.Get(pgstore.Open(t.Context(), c.URL(db, "")))(t).Close()
}

func (*postgres) admin(t *testing.T, h host, db string) *sql.DB {
	t.Helper()
	return stdlib.OpenDB(*must.Get(pgx.ParseConfig(h.(*pgtest.Cluster).URL(db, "")))(t))
}

func (d *postgres) upstream(h host) string {
	if d.bounced {
		return d.bouncer.Addr()
	}
	return h.Addr()
}

func (*postgres) proxy(tb testing.TB, upstream string, decide sqlproxy.Decide) *sqlproxy.Proxy {
	tb.Helper()
	return sqlproxy.Postgres(tb, upstream, decide)
}

func (d *postgres) open(t *testing.T, to connect) client {
	t.Helper()
	hosts := to.addrs[0]
	if to.listed {
		hosts = strings.Join(to.addrs, ",")
	}
	cfg := must.Get(pgxpool.ParseConfig("postgres://postgres@" + hosts + "/" + to.db + "?sslmode=disable"))(t)
	cfg.MaxConns = 4
	if !to.listed {
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to.addrs[rand.IntN(len(to.addrs))])
		}
	}
	if d.bouncer != nil {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	require.NoError(t, err)
	store := pgstore.New(pool)
	c := client{store: store, begin: func(ctx context.Context) (handle, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*budget)
		defer cancel()
		tx, err := pool.Begin(ctx)
		if err != nil {
			return handle{}, err
		}
		return handleOfPgx(tx), nil
	}}
	if to.twin {
		c.reads = stdlib.OpenDBFromPool(pool)
	}
	c.close = func() {
		store.Close()
		if c.reads != nil {
			_ = c.reads.Close()
		}
		pool.Close()
	}
	return c
}

var postgresPhases = phases{
	{"fence", "lock_timeout"},
	{"end of a session", "pg_terminate_backend"},
	{"renewal", "greatest(ends_at"},
	{"release", "DELETE FROM"},
	{"claim", "ON CONFLICT"},
	{"work", "INSERT INTO orders"},
}

func (*postgres) phase(x *sqlproxy.Exchange) string {
	for _, name := range []string{"commit", "begin", "rollback"} {
		if x.Begins(name) {
			return name
		}
	}
	return postgresPhases.of(x)
}

func (*postgres) tables() string { return "CREATE TABLE orders (name text, answer bytea)" }

func (*postgres) insert() string { return "INSERT INTO orders VALUES ($1, $2)" }

func (*postgres) rare() []string {
	return []string{
		"commit unanswered and applied", "commit unanswered and not applied", "late commit found no claim", "settle after a takeover", "serialization failure",
	}
}

func (*postgres) tx(ctx context.Context) (handle, bool) {
	tx, ok := pgstore.Tx(ctx)
	return handleOfPgx(tx), ok
}

func (*postgres) before(ctx context.Context, tx handle) error {
	return must.Err(tx.exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
}

func (*postgres) trouble(context.Context, *serverShop, *serverProcess, handle) {}

func (*postgres) endSession(ctx context.Context, db *sql.DB) bool {
	return ask(ctx, db, "SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid() AND datname = current_database() LIMIT 1") != 0
}

// shock kills a process of the server, after which the server ends all sessions and recovers.
func (*postgres) shock(ctx context.Context, w *serverShop) (name string) {
	if !killBackend(ctx, w.db) {
		return ""
	}
	return "backend: killed, server recovered"
}

func killBackend(ctx context.Context, db *sql.DB) bool {
	pid := ask(ctx, db, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() ORDER BY random() LIMIT 1")
	return pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// ask returns the number that a statement returns, 0 if there is no answer.
func ask(ctx context.Context, db *sql.DB, statement string, args ...any) (n int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = db.QueryRowContext(ctx, statement, args...).Scan(&n)
	return n
}

const leavesReceipt = "UPDATE latch_entries SET receipt = $3, linger = 0, ends_at = clock_timestamp() + $4 * interval '1 microsecond' WHERE key = $1 AND token = $2"

// postgresTwins are planted bugs. The ones of postgresFailoverTwins show after failovers.
var (
	postgresTwins = map[string]func(c client) transactor{
		"takes silence for no": func(c client) transactor { return neverAsks{c.store} },
		"settles apart":        func(c client) transactor { return naive{c.store, c.begin, settlesApart} },
		"trusts its lease":     func(c client) transactor { return naive{c.store, c.begin, leaves(0, leavesAs(leavesReceipt))} },
	}
	postgresFailoverTwins = map[string]func(c client) transactor{
		"asks by reading": func(c client) transactor {
			return asks{c.store, func(ctx context.Context, key, token string) (committed bool, err error) {
				return scanned(c.reads.QueryRowContext(ctx, "SELECT receipt IS NOT NULL FROM latch_entries WHERE key = $1 AND token = $2", []byte(key), []byte(token)))
			}}
		},
		"its context may cancel COMMIT": func(c client) transactor {
			return asks{naive{c.store, c.begin, leaves(1, leavesAs(leavesReceipt+" AND receipt IS NULL AND attempt > 0"))}, func(ctx context.Context, key, token string) (committed bool, err error) {
				return scanned(c.reads.QueryRowContext(ctx, "UPDATE latch_entries SET attempt = CASE WHEN receipt IS NULL THEN -abs(attempt) ELSE attempt END WHERE key = $1 AND token = $2 RETURNING receipt IS NOT NULL",
					[]byte(key), []byte(token)))
			}}
		},
		"replays what it reads": func(c client) transactor {
			return looks{c.store, c.reads, "SELECT fingerprint, receipt FROM latch_entries WHERE key = $1 AND receipt IS NOT NULL"}
		},
	}
)

func leavesAs(statement string) func(*naiveTx, []byte, time.Duration) (string, []any) {
	return func(t *naiveTx, receipt []byte, keep time.Duration) (string, []any) {
		return statement, []any{[]byte(t.key), []byte(t.token), receipt, float64(keep.Microseconds())}
	}
}

// scanned returns the answer in a row, false if there is none.
func scanned(row *sql.Row) (yes bool, err error) {
	if err = row.Scan(&yes); errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return yes, err
}

func (*postgres) twin(name string, c client) transactor {
	if twin, is := postgresTwins[name]; is {
		return twin(c)
	}
	return postgresFailoverTwins[name](c)
}

const pairName = "postgres" // the database of a pair

func (d *postgres) pair(t *testing.T, p *pair) {
	t.Helper()
	_, port, _ := net.SplitHostPort(p.link.Addr())
	settings := []string{"max_connections=200", "wal_retrieve_retry_interval=50ms", "primary_conninfo=host=127.0.0.1 port=" + port + " user=postgres application_name=standby"}
	a := pgtest.Start(t, settings...)
	a.Exec(t, pairName, "UPDATE pg_database SET datistemplate = false")
	a.Exec(t, pairName, "DROP DATABASE template0")
	a.Exec(t, pairName, "DROP DATABASE template1") // so that there is little to copy
	makeTables(t, a, pairName)
	p.serverShop = shopOf(t, d, a, pairName, p.planted)
	if p.surveyed = p.waits; p.waits {
		a.Exec(t, pairName, "ALTER SYSTEM SET synchronous_standby_names = 'standby'") // the copies of its data have it, too
		a.Exec(t, pairName, "SELECT pg_reload_conf()")
	}
	p.link.To(a.Addr())
	b := a.Standby(t, settings...)
	p.hosts = [2]host{a, b}
	d.bouncer = pgtest.PgBouncer(t, a.Addr(), "max_client_conn=1000", "default_pool_size=40", "server_login_retry=0")
	d.await(t, p, a)
}

func (*postgres) await(t *testing.T, p *pair, primary host) {
	t.Helper()
	primary.(*pgtest.Cluster).AwaitStandby(t, map[bool]string{true: "sync", false: "async"}[p.waits])
}

func (d *postgres) promote(t *testing.T, _ *pair, heir host) {
	t.Helper()
	heir.(*pgtest.Cluster).Promote(t)
	d.bouncer.To(t, heir.Addr())
}

func (d *postgres) follow(t *testing.T, p *pair, primary, replica host) {
	t.Helper()
	replica.(*pgtest.Cluster).Follow(t, primary.(*pgtest.Cluster))
	d.await(t, p, primary)
}

func (*postgres) recovers(t *testing.T, p *pair, _ host) {
	t.Helper()
	killBackend(t.Context(), p.at())
}
