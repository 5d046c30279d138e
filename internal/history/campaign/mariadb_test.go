//go:build unix

package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// mariadb is the dialect of MariaDB and MySQL.
type mariadb struct{}

func (mariadb) start(t *testing.T) (h host, db string) {
	t.Helper()
	s := mysqltest.Start(t)
	db = s.Database(t)
	openStore(t, s, db)
	return s, db
}

func openStore(t *testing.T, s *mysqltest.Server, db string) {
	t.Helper()
	must.Get(mysqlstore.Open(t.Context(), s.DSN(db, "")))(t).Close()
}

func (mariadb) admin(t *testing.T, h host, db string) *sql.DB {
	t.Helper()
	opened, _ := openMySQL(t, h.(*mysqltest.Server).DSN(db, ""), func(*mysql.Config) {})
	return opened
}

// openMySQL returns a database whose driver does not log that the server was killed.
func openMySQL(t *testing.T, dsn string, set func(*mysql.Config)) (*sql.DB, *mysql.Config) {
	t.Helper()
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	cfg.Logger = &mysql.NopLogger{}
	set(cfg)
	return sql.OpenDB(must.Get(mysql.NewConnector(cfg))(t)), cfg
}

func (mariadb) upstream(h host) string { return h.Addr() }

func (mariadb) proxy(tb testing.TB, upstream string, decide sqlproxy.Decide) *sqlproxy.Proxy {
	tb.Helper()
	return sqlproxy.MySQL(tb, upstream, decide)
}

const customer = "customer" // the user of the processes of a pair

func (mariadb) open(t *testing.T, to connect) client {
	t.Helper()
	user, reject := "root", ""
	if to.paired {
		user, reject = customer, "&rejectReadOnly=true"
	}
	db, cfg := openMySQL(t, user+"@tcp("+to.addrs[0]+")/"+to.db+"?interpolateParams=true"+reject, func(cfg *mysql.Config) {
		if to.twin {
			cfg.ReadTimeout = 4 * budget // a twin may begin its transaction without a bound
		}
		cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to.addrs[rand.IntN(len(to.addrs))])
		}
	})
	db.SetMaxOpenConns(4)
	store := mysqlstore.New(db, cfg)
	return client{store, func(ctx context.Context) (handle, error) {
		tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
		return handleOfSQL(tx), err
	}, db, func() {
		store.Close()
		_ = db.Close()
	}}
}

var mariadbPhases = phases{
	{"commit", "COMMIT AND NO CHAIN"},
	{"fence", "NOWAIT"},
	{"end of a session", "KILL"},
	{"renewal", "GREATEST(over_at"},
	{"renewal", "over_at = GREATEST(ends_at"},
	{"settle", "SET settled = 1"},
	{"release", "DELETE FROM"},
	{"claim", "(lock_key, token"},
	{"claim", "SET token ="},
	{"read", "WHERE lock_key IN"},
	{"begin", "SAVEPOINT latch"},
	{"work", "INSERT INTO orders"},
}

func (mariadb) phase(x *sqlproxy.Exchange) string { return mariadbPhases.of(x) }

func (mariadb) tables() string {
	return "CREATE TABLE orders (name VARCHAR(100) NOT NULL, answer VARBINARY(100) NOT NULL) ENGINE = InnoDB; " +
		"CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB; INSERT INTO stock VALUES (1, 0), (2, 0)"
}

func (mariadb) insert() string { return "INSERT INTO orders VALUES (?, ?)" }

func (mariadb) rare() []string {
	return []string{"commit unanswered and applied", "commit unanswered and not applied", "late commit found no claim", "settle after a takeover"}
}

func (mariadb) tx(ctx context.Context) (handle, bool) {
	tx, ok := mysqlstore.Tx(ctx)
	return handleOfSQL(tx), ok
}

func (mariadb) before(context.Context, handle) error { return nil }

// trouble has work meet a deadlock, after which it goes on as if nothing were. InnoDB rolls back
// either transaction. Now and then the network forgets all connections of the process.
func (mariadb) trouble(ctx context.Context, w *serverShop, p *serverProcess, tx handle) {
	if rand.IntN(4) == 0 {
		w.Faults.Add("network: forgets all connections")
		for _, proxy := range p.proxies {
			proxy.Silence()
		}
		return
	}
	if _, err := tx.exec(ctx, "UPDATE stock SET n = n + 1 WHERE id = 1"); err != nil {
		return
	}
	other, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer other.Rollback() //nolint:errcheck // nothing of it is to stay
	for range 10 {         // the transaction that has changed fewer rows is rolled back
		if _, err := other.ExecContext(ctx, "INSERT INTO stock SELECT 10 + FLOOR(RAND() * 1000000000), 0"); err != nil {
			return
		}
	}
	if _, err := other.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 2"); err != nil {
		return
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = other.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 1")
	}()
	time.Sleep(20 * time.Millisecond)
	_, err = tx.exec(ctx, "UPDATE stock SET n = n + 1 WHERE id = 2")
	<-waited
	if answer, is := errors.AsType[*mysql.MySQLError](err); is && answer.Number == 1213 {
		w.Faults.Add("work: a deadlock has rolled it back")
	}
}

func (mariadb) endSession(ctx context.Context, db *sql.DB) bool {
	id := ask(ctx, db, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1")
	if id == 0 {
		return false
	}
	_, err := db.ExecContext(ctx, "KILL CONNECTION "+strconv.Itoa(id))
	return err == nil
}

func (mariadb) shock(_ context.Context, w *serverShop) (name string) {
	w.host.Exec(w.t, w.name, fmt.Sprintf("LOCK TABLES latch_entries WRITE; DO SLEEP(%.2f)", 1.5*rand.Float64()))
	return "table: locked"
}

// mariadbTwins are planted bugs. The one of mariadbFailoverTwins shows after failovers.
var (
	mariadbTwins = map[string]func(c client) transactor{
		"takes silence for no": func(c client) transactor { return neverAsks{c.store} },
		"settles apart":        func(c client) transactor { return naive{c.store, c.begin, settlesApart} },
		"has no savepoint": func(c client) transactor {
			return naive{c.store, c.begin, leaves(1, func(t *naiveTx, receipt []byte, keep time.Duration) (string, []any) {
				return "UPDATE latch_entries SET settled = 1, receipt = ?, ends_at = ?, over_at = ends_at WHERE lock_key = ? AND token = ?",
					[]any{receipt, time.Now().Add(keep).UnixMicro(), []byte(t.key), []byte(t.token)}
			})}
		},
	}
	mariadbFailoverTwins = map[string]func(c client) transactor{
		"replays what it reads": func(c client) transactor {
			return looks{c.store, c.reads, "SELECT fingerprint, receipt FROM latch_entries WHERE lock_key = ? AND settled = 1"}
		},
	}
)

func (mariadb) twin(name string, c client) transactor {
	if twin, is := mariadbTwins[name]; is {
		return twin(c)
	}
	return mariadbFailoverTwins[name](c)
}

// waiting is the statement that has a primary wait for its replica.
func waiting(p *pair) string {
	return "SET GLOBAL rpl_semi_sync_master_enabled = " + map[bool]string{true: "ON", false: "OFF"}[p.waits]
}

// settings are of both servers of a pair.
func settings(p *pair, more ...string) []string {
	if !p.waits {
		return more
	}
	return append(mysqltest.SemiSynchronous(), more...)
}

func (d mariadb) pair(t *testing.T, p *pair) {
	t.Helper()
	var servers [2]*mysqltest.Server
	for i := range servers {
		servers[i] = mysqltest.Start(t, mysqltest.Replicated(i+1, settings(p)...)...)
		p.hosts[i] = servers[i]
	}
	first := servers[0]
	first.Exec(t, "", "CREATE DATABASE shop")
	openStore(t, first, "shop")
	p.serverShop = shopOf(t, d, first, "shop", p.planted)
	first.User(t, customer, p.name)
	first.Exec(t, "", waiting(p))
	d.follow(t, p, servers[0], servers[1])
}

func (mariadb) promote(t *testing.T, p *pair, heir host) {
	t.Helper()
	heir.(*mysqltest.Server).Promote(t, waiting(p))
}

func (mariadb) follow(t *testing.T, p *pair, primary, replica host) {
	t.Helper()
	at, other := primary.(*mysqltest.Server), replica.(*mysqltest.Server)
	number := map[bool]int{true: 1, false: 2}[primary == p.hosts[0]]
	at.Configure(mysqltest.Replicated(number, settings(p, "rpl-semi-sync-master-enabled="+map[bool]string{true: "ON", false: "OFF"}[p.waits])...)...)
	other.Configure(mysqltest.Replicated(3-number, settings(p)...)...)
	p.link.To(at.Addr())
	other.Follow(t, at, p.link.Addr(), p.name)
	other.User(t, customer, p.name)
	at.AwaitReplica(t, other)
}

func (mariadb) recovers(t *testing.T, _ *pair, primary host) {
	t.Helper()
	primary.Kill()
	primary.Restart(t)
}
