// Package shop has what is compared over PostgreSQL: ways to insert an order and to answer
// a repeat of it. Each has a pool of the same size to a database of its own in one server,
// the same table of orders, and the same statement to insert into it.
package shop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Names of contenders.
const (
	Ours      = "httplatch"
	OursSQL   = "httplatch, database/sql"
	Idemlease = "repenguin22/idemlease"
	Bare      = "bare" // BEGIN, INSERT, COMMIT, and for a replay a SELECT by primary key; keeps no answers by itself, see Shop.Keep
)

// Lease and Retention are those of every contender, if it has them.
const (
	Lease     = 30 * time.Second
	Retention = 24 * time.Hour
)

// Contender is one way.
type Contender struct {
	Name string
	Open func(ctx context.Context, t Target) (Shop, error)
}

// Target is what every contender is given.
type Target struct {
	URL  string        // of an empty database
	Pool int           // connections at most
	Keep time.Duration // of answers; Retention if 0
}

// Shop inserts orders. It is safe for concurrent use.
type Shop interface {
	// Order inserts one under a key that has none, and keeps its answer if the contender
	// does so.
	Order(ctx context.Context, key string) error
	// Keep is Order, and an answer is kept for certain.
	Keep(ctx context.Context, key string) error
	// Replay reads the answer of Keep. It is an error if there is none.
	Replay(ctx context.Context, key string) error
	Close(ctx context.Context) error
}

// Claimer is the first half of an order alone, which nothing follows. Shops of this library
// implement it.
type Claimer interface {
	Claim(ctx context.Context, key string) error
}

// All are the contenders. That of idemlease is not in every build.
func All() []Contender {
	all := []Contender{{Ours, openLatch}, {OursSQL, openLatchSQL}, {Bare, openBare}}
	if open := openIdemlease(); open != nil {
		all = append(all, Contender{Idemlease, open})
	}
	return all
}

const (
	createOrders = `CREATE TABLE IF NOT EXISTS orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, sku text NOT NULL, quantity int NOT NULL)`
	insertOrder = `INSERT INTO orders (customer, sku, quantity) VALUES ($1, $2, $3) RETURNING id`

	customer, sku, quantity = "u1", "teapot", 1
)

// answer is what is kept of an order, about as long as a small response with its headers.
func answer(id int64) []byte {
	return fmt.Appendf(nil, `{"status":201,"header":{"Content-Type":["application/json"],"Location":["/orders/%d"]},"body":"{\"id\":%d,\"sku\":%q,\"quantity\":%d}"}`, id, id, sku, quantity)
}

var (
	errReplayed = errors.New("shop: a new key has an answer")
	errNoReplay = errors.New("shop: a key that has an answer was ordered under again")
)

// openPool connects, and makes the table of orders.
func openPool(ctx context.Context, t Target) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(t.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(t.Pool) //nolint:gosec // no pool is that large
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if _, err = pool.Exec(ctx, createOrders); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

type row interface{ Scan(into ...any) error }

// inserted reads the answer of a row of insertOrder.
func inserted(r row) ([]byte, error) {
	var id int64
	if err := r.Scan(&id); err != nil {
		return nil, err
	}
	return answer(id), nil
}

// bare is a transaction as it would be without any idempotency, and, for repeats, a table
// of answers with the key as its primary key.
type bare struct{ pool *pgxpool.Pool }

func openBare(ctx context.Context, t Target) (Shop, error) {
	pool, err := openPool(ctx, t)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS answers (key bytea PRIMARY KEY, answer bytea NOT NULL)`); err != nil {
		pool.Close()
		return nil, err
	}
	return bare{pool}, nil
}

func (b bare) Order(ctx context.Context, _ string) error {
	return b.order(ctx, func(pgx.Tx, []byte) error { return nil })
}

func (b bare) order(ctx context.Context, and func(tx pgx.Tx, answer []byte) error) error {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return err
	}
	answer, err := inserted(tx.QueryRow(ctx, insertOrder, customer, sku, quantity))
	if err == nil {
		err = and(tx, answer)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func (b bare) Keep(ctx context.Context, key string) error {
	return b.order(ctx, func(tx pgx.Tx, answer []byte) error {
		_, err := tx.Exec(ctx, `INSERT INTO answers (key, answer) VALUES ($1, $2)`, []byte(key), answer)
		return err
	})
}

func (b bare) Replay(ctx context.Context, key string) error {
	var answer []byte
	return b.pool.QueryRow(ctx, `SELECT answer FROM answers WHERE key = $1`, []byte(key)).Scan(&answer)
}

func (b bare) Close(context.Context) error {
	b.pool.Close()
	return nil
}
