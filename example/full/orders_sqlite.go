package main

import "github.com/httplatch/httplatch/lock/sqlitestore"

// inSQLite keeps the orders in a file.
var inSQLite = dialect{
	tx: sqlitestore.Tx,
	tables: []string{`
CREATE TABLE IF NOT EXISTS orders (
	number   INTEGER PRIMARY KEY AUTOINCREMENT, -- the oldest first
	id       TEXT    NOT NULL,
	customer TEXT    NOT NULL,
	sku      TEXT    NOT NULL,
	quantity INTEGER NOT NULL,
	status   TEXT    NOT NULL DEFAULT 'placed',
	fence    INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_id ON orders (id);
CREATE INDEX IF NOT EXISTS orders_user ON orders (customer, number);
CREATE TABLE IF NOT EXISTS order_fences (
	customer TEXT    PRIMARY KEY,
	fence    INTEGER NOT NULL -- the highest seen
);`},
	raise:  `INSERT INTO order_fences (customer, fence) VALUES (?, ?) ON CONFLICT (customer) DO UPDATE SET fence = max(fence, excluded.fence)`,
	raised: `SELECT fence FROM order_fences WHERE customer = ?`,
}
