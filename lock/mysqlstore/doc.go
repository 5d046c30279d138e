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
// Work without a receipt did not happen then, and work with a receipt happened once, as far as its
// tables are InnoDB's. The driver is github.com/go-sql-driver/mysql, under the Mozilla Public
// License 2.0.
//
// # Connections
//
// Transactions of the work take connections of the *sql.DB that the store was given, one for as
// long as the work runs. All other calls, such as claims, renewals and clean-up, use up to four
// of the store's own, so that work which holds every connection of the *sql.DB starves no
// renewal. [Store.Close] closes them. Work waits for a connection as long as its caller does,
// 10 s at most.
//
// The settings of the driver and of the work's sessions do not matter, such as parseTime,
// clientFoundRows, sql_mode, time_zone and character sets: keys, tokens and receipts are bytes,
// and times are numbers. Waiters poll: they are not notified when a key is free.
//
// # Overload
//
// The store measures how fast waiting calls get a connection. A claim that would not be served
// in half of its time is refused at once, as not applied: an error that matches
// [lock.ErrDenied]. So is a claim whose work would wait for a connection for more than 5 s.
// Renewals, receipts and releases are not refused.
//
// # Transactions
//
// The work's transaction begins with its first statement, and with a savepoint that is released
// before the receipt is written. MySQL ends a transaction without being asked to: a deadlock
// rolls back all of it, ALTER TABLE commits it, and later statements are committed one by one.
// So statements that would end it are refused, statements after a deadlock are refused, and the
// receipt is refused without the savepoint. If a procedure of the database commits, its changes
// stay, later statements are refused, and the receipt is left apart from them.
//
// Other failed statements leave the transaction as it is: work may go on after a duplicate key.
//
// # Durability
//
// A claim, a renewal and a receipt are on disk before they are answered, as far as the server's
// settings go (innodb_flush_log_at_trx_commit, sync_binlog). With semi-synchronous replication
// they are also on a replica, if the server waits for it before others can read them:
// rpl_semi_sync_master_wait_point has to be AFTER_SYNC, which Check looks at, and
// rpl_semi_sync_master_timeout as long as an outage of the replica may be: after it, the server
// waits no longer. A server that has recovered from a crash shows what no replica has, so a
// receipt is only read with a write of the store's own, for which the server waits as well: a
// replay costs a commit there. Whether the server knows the setting is looked at once. Galera
// and group replication need one node that is written to.
//
// Leases end by the server's clock. If the clock is set back, leases last longer by the
// difference, and nothing is granted twice. If it is set forward, leases end earlier than their
// holders expect. [lock.WithFencing] guards against that, and work in a transaction is not
// affected: its receipt is refused with the claim.
//
// A COMMIT is never cancelled. The outcome of a COMMIT without an answer is asked by a write,
// which no read-only server answers, and which takes the claim away from the transaction: a
// COMMIT that arrives later finds none. A session of the same user that is idle in its
// transaction is ended by KILL, which needs no privilege.
//
// A fence is drawn after its claim has won the key, in the same transaction, so that the
// fences of a key rise in the order of its grants.
//
// # Privileges
//
// [Schema] needs CREATE. The user of the store then needs:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON shop.latch_entries TO shop;
//	GRANT SELECT, INSERT, DELETE ON shop.latch_entries_fence TO shop;
//
// The work's user needs the same if it is another one.
package mysqlstore
