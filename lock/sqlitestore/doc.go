// Package sqlitestore keeps the entries of a lock.Locker in a file of SQLite, for services on one
// machine: an embedded store that survives a restart. It is a whole [lock.Store], and can commit a
// receipt together with the work ([lock.WithTransaction], [Tx]):
//
//	store, err := sqlitestore.Open(ctx, "shop.db")
//	once := latch.Idempotent(lock.New(store, lock.WithTransaction()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
//	func createOrder(w http.ResponseWriter, r *http.Request) {
//		tx, _ := sqlitestore.Tx(r.Context())
//		_, err := tx.ExecContext(r.Context(), `INSERT INTO orders ...`)
//
// Work without a receipt did not happen then, and work with a receipt happened once. The driver is
// modernc.org/sqlite, which needs no cgo.
//
// # Files
//
// SQLite lets one transaction at a time write to a file. Work that has written would hold up
// every claim and renewal until it commits. So they are in a file of their own: "shop.db-latch"
// beside "shop.db", made with its permissions. Receipts of transactions are in the database, where
// the work is. All other receipts and cool-downs are in the file of the claims.
//
// Several processes of one machine may use the files, but not over a network file system. The
// two files belong together in a backup. Do not remove one while a process uses it: another
// process would make a new one. If the file of the claims is lost, no receipt of a transaction is,
// and work that is in progress is rolled back.
//
// # Transactions
//
// Work takes a connection of the database that the store was given. BEGIN IMMEDIATE comes with its
// first statement, which waits in line for other work of the process, for 10 s at most. From then
// on no other work writes, so what takes long is better done before the first statement.
// Writes past the transaction, by the *sql.DB, wait for it too: within the work they would wait
// for themselves.
//
// A failed statement leaves the transaction as it is, except where SQLite rolls all of it back: if
// the statement was interrupted by its context, or the disk is full. Later statements, which
// SQLite would commit at once, are refused then, and so is the receipt. A COMMIT or ROLLBACK of
// the work itself is refused.
//
// The receipt is committed while the file of the claims is locked, so no other call comes between a
// claim and its receipt. There is no COMMIT without an answer, unless the disk hangs or fails.
// The outcome of such a COMMIT is known when the disk answers.
//
// # Durability
//
// A receipt in a transaction is on disk before it is answered as far as the settings of its
// connection go: PRAGMA synchronous is FULL with [Open], and in SQLite by default. Other receipts,
// and claims that are remembered after their lease, are on disk before they are answered. Other
// claims are lost in a power failure, with the processes that held them, and survive the end of a
// process. Calls that arrive together share their wait for the disk.
//
// A process that is stopped, and not killed, keeps its locks of the files: no other work writes
// while it has written in a transaction. SQLite has no server that could end it.
//
// Leases end by the clock of the machine. If the clock is set back, leases last longer by the
// difference, and nothing is granted twice. If it is set forward, leases end earlier than their
// holders expect. [lock.WithFencing] guards against that, and work in a transaction is not
// affected: its receipt is refused with the claim.
//
// A call waits for the disk no longer than its context. Waiters poll.
package sqlitestore
