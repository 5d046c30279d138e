package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/mysqlstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/quorum"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// prefix begins the names of the desk's entries. It names the service: another service with the
// same prefix on the same Redis would get the desk's answers.
const prefix = "desk:"

// openTimeout bounds how long the store may take to answer at the start.
const openTimeout = 5 * time.Second

// backend keeps the locks and the orders of the desk.
type backend struct {
	store  lock.Store
	orders orders
	jobs   jobs // nil: this backend keeps none
	close  func() error
}

// where says where the desk keeps its locks.
func (c config) where() string {
	switch {
	case c.postgres != "":
		return "PostgreSQL, with the orders"
	case c.mysql != "":
		return "MySQL or MariaDB, with the orders"
	case c.sqlite != "":
		return "a file of SQLite, with the orders"
	case c.quorum():
		return fmt.Sprintf("a quorum of %d Redis servers, for locks alone", len(c.redis))
	case len(c.redis) == 1:
		return "Redis"
	default:
		return "embedded, for this process alone (-redis URL, -postgres URL or -mysql DSN: for several; -sqlite FILE: it survives a restart)"
	}
}

// open opens the PostgreSQL, the MySQL or the Redis that is named, the file of SQLite, a quorum of
// several Redis, or the embedded store without any.
func (c config) open(ctx context.Context) (backend, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	b := backend{orders: newMemoryOrders(), jobs: new(memoryJobs), close: func() error { return nil }}
	var err error
	switch {
	case c.postgres != "":
		return openPostgres(ctx, c.postgres)
	case c.mysql != "":
		return openMySQL(ctx, c.mysql)
	case c.sqlite != "":
		return openSQLite(ctx, c.sqlite)
	case c.quorum():
		b.store, b.close, err = openQuorum(ctx, c.redis, c.budget)
	case len(c.redis) == 1:
		var shared *redisstore.Store
		if shared, err = redisstore.Open(ctx, c.redis[0], redisstore.WithPrefix(prefix)); err != nil {
			return backend{}, fmt.Errorf("opening the store: %w", err)
		}
		b.store, b.close = shared, shared.Close
	default:
		b.store = memstore.New()
	}
	return b, err
}

// openPostgres opens a database that has the orders in addition to the locks.
func openPostgres(ctx context.Context, url string) (backend, error) {
	store, err := pgstore.Open(ctx, url)
	if err != nil {
		return backend{}, fmt.Errorf("opening the store: %w", err)
	}
	table, err := newTableOrders(ctx, store.Pool())
	if err != nil {
		store.Close()
		return backend{}, err
	}
	return backend{store, table, table, func() error { store.Close(); return nil }}, nil
}

// openMySQL opens a database that has the orders in addition to the locks.
func openMySQL(ctx context.Context, dsn string) (backend, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return backend{}, fmt.Errorf("-mysql: %w", err)
	}
	cfg.ClientFoundRows = true // a payment of a paid order changes no row
	store, err := mysqlstore.Open(ctx, cfg.FormatDSN())
	if err != nil {
		return backend{}, fmt.Errorf("opening the store: %w", err)
	}
	table, err := newSQLOrders(ctx, store.DB(), inMySQL)
	if err != nil {
		store.Close()
		return backend{}, err
	}
	return backend{store, table, nil, func() error { store.Close(); return nil }}, nil
}

// openSQLite opens a file that has the orders in addition to the receipts.
func openSQLite(ctx context.Context, file string) (backend, error) {
	store, err := sqlitestore.Open(ctx, file)
	if err != nil {
		return backend{}, fmt.Errorf("opening the store: %w", err)
	}
	table, err := newSQLOrders(ctx, store.DB(), inSQLite)
	if err != nil {
		store.Close()
		return backend{}, err
	}
	return backend{store, table, nil, func() error { store.Close(); return nil }}, nil
}

// openQuorum opens independent masters. A minority may be down, and a desk that
// starts must not wait for them.
func openQuorum(ctx context.Context, urls []string, budget time.Duration) (lock.Store, func() error, error) {
	var nodes []lock.Store
	var masters []*redisstore.Store
	closeAll := func() error {
		var errs []error
		for _, m := range masters {
			errs = append(errs, m.Close())
		}
		return errors.Join(errs...)
	}
	for i, url := range urls {
		master, err := redisstore.Open(ctx, url, redisstore.WithPrefix(prefix), redisstore.WithoutCheck())
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("opening the store, -redis number %d: %w", i+1, err), closeAll())
		}
		masters, nodes = append(masters, master), append(nodes, master)
	}
	// A node that is silent costs a part of the budget, and leaves time to ask
	// again.
	majority := quorum.New(nodes, quorum.WithNodeTimeout(budget/5))
	if err := majority.Check(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("opening the store: %w", err), closeAll())
	}
	return majority, closeAll, nil
}
