package campaign_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

const (
	lease  = 1500 * time.Millisecond
	budget = 500 * time.Millisecond
)

type transactor interface {
	lock.Store
	lock.Transactor
}

// shop is a server, and the campaign there.
type shop struct {
	*once.Campaign

	t      *testing.T
	server *mysqltest.Server
	name   string
	db     *sql.DB // not of the processes
	broken func(*mysqlstore.Store, *sql.DB) transactor
}

func start(t *testing.T, broken func(*mysqlstore.Store, *sql.DB) transactor) *shop {
	t.Helper()
	server := mysqltest.Start(t)
	return shopOf(t, server, server.Database(t), broken)
}

// shopOf makes a database of a server a shop.
func shopOf(t *testing.T, server *mysqltest.Server, name string, broken func(*mysqlstore.Store, *sql.DB) transactor) *shop {
	t.Helper()
	w := &shop{Campaign: once.New(t), t: t, broken: broken, server: server, name: name}
	store, err := mysqlstore.Open(t.Context(), w.server.DSN(w.name, ""))
	require.NoError(t, err)
	store.Close()
	w.server.Exec(t, w.name, "CREATE TABLE orders (name VARCHAR(100) NOT NULL, answer VARBINARY(100) NOT NULL) ENGINE = InnoDB; "+
		"CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB; INSERT INTO stock VALUES (1, 0), (2, 0)")
	w.db = open(t, w.server.DSN(w.name, ""))
	t.Cleanup(func() { _ = w.db.Close() }) // its server may be gone
	return w
}

// open returns a database whose driver does not log that the server was killed.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	return sql.OpenDB(connector)
}

// Orders is part of [once.Shop].
func (w *shop) Orders(ctx context.Context) (all []once.Row, ok bool) { return ordersOf(ctx, w.db) }

// ordersOf returns the rows that were committed. ok is false while the server does not answer.
func ordersOf(ctx context.Context, db *sql.DB) (all []once.Row, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rows, err := db.QueryContext(ctx, "SELECT name, answer FROM orders")
	if err != nil {
		return nil, false // it is restarting
	}
	defer rows.Close()
	for rows.Next() {
		var o once.Row
		if err := rows.Scan(&o.Name, &o.Answer); err != nil {
			return nil, false
		}
		all = append(all, o)
	}
	return all, rows.Err() == nil
}

// Strike is part of [once.Shop]. It kills sessions and the server, and locks the table.
func (w *shop) Strike(ctx context.Context, r *rand.Rand) {
	for w.Pause(ctx, time.Duration(500+r.IntN(3000))*time.Millisecond) {
		switch r.IntN(8) {
		case 0:
			w.Faults.Add("server: killed, recovered")
			w.server.Kill()
			w.server.Restart(w.t)
			continue
		case 1:
			w.Faults.Add("table: locked")
			w.server.Exec(w.t, w.name, fmt.Sprintf("LOCK TABLES latch_entries WRITE; DO SLEEP(%.2f)", 1.5*r.Float64()))
			continue
		}
		var id int
		err := w.db.QueryRowContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ? AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1", w.name).Scan(&id)
		if err == nil {
			if _, err = w.db.ExecContext(ctx, "KILL CONNECTION "+strconv.Itoa(id)); err == nil {
				w.Faults.Add("session: ended")
			}
		}
	}
}

// process is one process of the shop. It has its own network, which is cut when it ends.
type process struct {
	w       *shop
	faults  *faults
	proxies []*mysqlproxy.Proxy // to all hosts
	db      *sql.DB
	store   *mysqlstore.Store
	locker  *lock.Locker
}

// Open is part of [once.Shop].
func (w *shop) Open(r *rand.Rand) once.Process {
	f := &faults{counts: &w.Faults, over: w.Over, r: rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))}
	return w.process(f, w.server.DSN(w.name, "", "interpolateParams=true"), mysqlproxy.Start(w.t, w.server.Addr(), f.decide))
}

// process starts a process whose connections go through one of the given proxies.
func (w *shop) process(f *faults, dsn string, proxies ...*mysqlproxy.Proxy) *process {
	p := &process{w: w, faults: f, proxies: proxies}
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(w.t, err)
	cfg.Logger = &mysql.NopLogger{}
	if w.broken != nil {
		cfg.ReadTimeout = 4 * budget // a twin may begin its transaction without a bound
	}
	cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, proxies[rand.IntN(len(proxies))].Addr())
	}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(w.t, err)
	p.db = sql.OpenDB(connector)
	p.db.SetMaxOpenConns(4)
	p.store = mysqlstore.New(p.db, cfg)
	var store transactor = p.store
	if w.broken != nil {
		store = w.broken(p.store, p.db)
	}
	p.locker = lock.New(&watched{store, w, f}, lock.WithTransaction(), lock.WithLease(lease), lock.WithBudget(budget),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithKeep(time.Hour))
	return p
}

// Kill is part of [once.Process].
func (p *process) Kill() {
	for _, proxy := range p.proxies {
		proxy.Close()
	}
}

// Close is part of [once.Process].
func (p *process) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lease)
	defer cancel()
	_ = p.locker.Close(ctx)
	p.Kill()
	p.store.Close()
	_ = p.db.Close()
}

// Order is part of [once.Process].
func (p *process) Order(ctx context.Context, o *once.Order) (reply once.Reply) {
	slow := !p.w.Over() && o.Dice.IntN(10) == 0
	deadlocks := !p.w.Over() && o.Dice.IntN(15) == 0
	fails := o.Dice.IntN(30) == 0
	if !p.w.Over() && o.Dice.IntN(60) == 0 {
		p.w.Faults.Add("network: forgets all connections")
		for _, proxy := range p.proxies {
			proxy.Silence()
		}
	}
	reply.Receipt, reply.Replayed, reply.Err = p.locker.Once(ctx, o.Name, nil, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, lease+budget)
		defer cancel()
		reply.Ran = true
		tx, ok := txOf(ctx)
		if !ok {
			return nil, errors.New("no transaction")
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", o.Name, o.Answer); err != nil {
			return nil, err
		}
		if slow {
			p.w.Faults.Add("work: longer than a lease")
			p.faults.dropRenewals(true)
			time.Sleep(lease + lease/4)
			p.faults.dropRenewals(false)
		}
		if deadlocks {
			p.w.deadlock(ctx, tx)
		}
		if fails {
			return nil, errors.New("the work failed")
		}
		return o.Answer, nil
	})
	return reply
}

// deadlock has work meet a deadlock, after which it goes on as if nothing were. InnoDB rolls back
// either transaction.
func (w *shop) deadlock(ctx context.Context, tx *sql.Tx) {
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 1"); err != nil {
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
	_, err = tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 2")
	<-waited
	if answer, is := errors.AsType[*mysql.MySQLError](err); is && answer.Number == 1213 {
		w.Faults.Add("work: a deadlock has rolled it back")
	}
}

// watched counts the paths of a store.
type watched struct {
	transactor

	w      *shop
	faults *faults
}

func (s *watched) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.transactor.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, once.Watched{Transaction: tx, Takes: s.w.Paths.Add, Late: s.faults.lateCommit}, nil
}
