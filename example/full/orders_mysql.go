package main

import "github.com/httplatch/httplatch/lock/mysqlstore"

// inMySQL keeps the orders in a database of MySQL or MariaDB. Customers are told apart by their
// bytes.
var inMySQL = dialect{
	tx: mysqlstore.Tx,
	tables: []string{`
CREATE TABLE IF NOT EXISTS orders (
	number   BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY, -- the oldest first
	id       VARCHAR(64)  NOT NULL,
	customer VARCHAR(255) NOT NULL,
	sku      TEXT         NOT NULL,
	quantity BIGINT       NOT NULL,
	status   VARCHAR(16)  NOT NULL DEFAULT 'placed',
	fence    BIGINT       NOT NULL,
	INDEX orders_id (id),
	INDEX orders_user (customer, number)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`, `
CREATE TABLE IF NOT EXISTS order_fences (
	customer VARCHAR(255) NOT NULL PRIMARY KEY,
	fence    BIGINT       NOT NULL -- the highest seen
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`},
	raise:  `INSERT INTO order_fences (customer, fence) VALUES (?, ?) ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))`,
	raised: `SELECT fence FROM order_fences WHERE customer = ? FOR UPDATE`,
}
