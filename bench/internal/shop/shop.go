// Package shop has what is compared over databases whose transactions can have the receipt: ways to
// insert an order and to answer a repeat of it. Those over one database have pools of the same size to
// databases of their own in one server, the same table of orders, and the same statement to insert into
// it.
package shop

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Databases.
const (
	PostgreSQL = "PostgreSQL"
	MariaDB    = "MariaDB"
	SQLite     = "SQLite"
)

// Names of contenders.
const (
	Ours      = "httplatch"
	OursSQL   = "httplatch, database/sql" // over PostgreSQL, where Ours uses pgx
	Idemlease = "repenguin22/idemlease"   // over PostgreSQL
	Bare      = "bare"                    // BEGIN, INSERT, COMMIT, and for a replay a SELECT by primary key; keeps no answers by itself, see Shop.Keep
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

// Target is the database, and the settings, for every contender.
type Target struct {
	URL  string        // of an empty database: a DSN over MariaDB and SQLite
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

// All are the contenders over a database, ours first. That of idemlease is not in every build.
func All(database string) []Contender {
	switch database {
	case MariaDB:
		return overSQL(mariadb)
	case SQLite:
		return overSQL(sqlite)
	}
	all := []Contender{{Ours, openLatch}, {OursSQL, openLatchSQL}, {Bare, openBare}}
	if open := openIdemlease(); open != nil {
		all = append(all, Contender{Idemlease, open})
	}
	return all
}

const customer, sku, quantity = "u1", "teapot", 1

// answer returns the stored answer to an order, about as long as a small response with its headers.
func answer(id int64) []byte {
	return fmt.Appendf(nil, `{"status":201,"header":{"Content-Type":["application/json"],"Location":["/orders/%d"]},"body":"{\"id\":%d,\"sku\":%q,\"quantity\":%d}"}`, id, id, sku, quantity)
}

var (
	errReplayed = errors.New("shop: a new key has an answer")
	errNoReplay = errors.New("shop: a key that has an answer was ordered under again")
)
