// Package mysqlstore keeps the entries of a lock.Locker in a table of MariaDB, 10.6 or later, or
// MySQL, 8 or later. It is a whole [lock.Store], and can commit a receipt together with the work
// ([lock.WithTransaction], [Tx]):
//
//	cfg, err := mysql.ParseDSN(dsn)
//	store := mysqlstore.New(db, cfg)
//	once := latch.Idempotent(lock.New(store, lock.WithTransaction()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
//	func createOrder(w http.ResponseWriter, r *http.Request) {
//		tx, _ := mysqlstore.Tx(r.Context())
//		_, err := tx.ExecContext(r.Context(), `INSERT INTO orders ...`)
//
// With transactions, work without a receipt did not happen, and work with a receipt happened once.
// This holds for tables of InnoDB. Which connections the store uses, when it refuses claims, what a clock
// that is set does to leases, and how this store differs from its siblings, is in the documentation of
// [github.com/httplatch/httplatch/lock/internal/rowstore]. The driver is github.com/go-sql-driver/mysql,
// under the Mozilla Public License 2.0.
//
// # Settings
//
// The settings of the driver and of the work's sessions do not matter, such as parseTime,
// clientFoundRows, sql_mode, time_zone, isolation (innodb_snapshot_isolation, too) and character
// sets: keys, tokens and receipts are bytes, and times are numbers. A receipt takes twice its size
// in a packet. If max_allowed_packet is smaller, the receipt is left empty, and later callers get
// no answer.
//
// # Transactions
//
// The first statement of the work begins the transaction, with a savepoint that is released before
// the receipt is written. MySQL can end a transaction by itself: a deadlock rolls back all of it,
// ALTER TABLE commits it, and later statements are committed one by one. So the store refuses
// statements that would end the transaction, statements after a deadlock, and a receipt without
// the savepoint. If a procedure of the database commits, its changes stay, later statements are
// refused, and the receipt is committed separately. If nothing shows how the transaction has ended,
// the outcome is unknown, and an empty receipt is left.
//
// Other failed statements leave the transaction as it is: work may go on after a duplicate key.
//
// # Durability
//
// A claim, a renewal and a receipt are on disk before the call returns, and with semi-synchronous
// replication on a replica, if the settings of the server are safe
// (https://github.com/httplatch/httplatch/blob/main/docs/databases.md). A server that has recovered
// from a crash can show commits that no replica has. So the store reads a receipt together with a
// write of its own, for which the server waits as well: a replay then costs a commit.
//
// The question for the outcome of a COMMIT without an answer waits until its transaction is over: the
// entry is locked until then. If the transaction is idle instead, the store ends its session by KILL,
// which needs no privilege.
//
// A connection to a server that refuses writes (read_only, or a node of Galera that is not ready) is
// closed, and the next one leads to the new primary. A connection that answers the beginning of a
// transaction not within a second is closed, too, and the transaction begins on a new one.
//
// # Privileges
//
// [Schema] needs CREATE. The user of the store then needs:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON shop.latch_entries TO shop;
//	GRANT SELECT, INSERT, DELETE ON shop.latch_entries_fence TO shop;
//
// If the work has another user, that user needs the same privileges.
package mysqlstore
