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
// With transactions, work without a receipt did not happen, and work with a receipt happened once.
// The driver is modernc.org/sqlite, which needs no cgo. What a clock that is set does to leases, and how
// this store differs from its siblings, is in the documentation of
// [github.com/httplatch/httplatch/lock/internal/rowstore].
//
// # Files
//
// SQLite lets one transaction at a time write to a file. In the database itself, claims and
// renewals would wait until work that has written commits. So they are in a second file,
// "shop.db-latch" next to "shop.db", made with the same permissions. Receipts of transactions are
// in the database, with the rows of the work. All other receipts and cool-downs are in the file of
// claims.
//
// Several processes of one machine may use the files, but not over a network file system, and not
// by two names of one file (hard links). Back up the two files together. If the file of claims is
// removed, or restored from a backup, all processes go on with the file that is there then: claims
// and receipts that it lacks are lost, work in progress is rolled back, and the receipts of
// transactions remain. Do not replace the database while a process uses it.
//
// # Transactions
//
// Work takes a connection of the database that the store was given. Its first statement sends
// BEGIN IMMEDIATE, and waits in line for other work of the process, for 10 s at most. From then
// on no other work writes, so do slow work before the first statement. Writes by the *sql.DB,
// outside of the transaction, wait for the end of the work, too. So the work must not make such
// writes: it would wait for itself.
//
// A failed statement leaves the transaction as it is, except where SQLite rolls back all of it: if
// the statement was interrupted by its context, or the disk is full. SQLite would commit each
// later statement at once. So later statements are refused, and so is the receipt. A COMMIT or
// ROLLBACK by the work itself is refused, and so is CREATE TRIGGER, which has an END.
//
// The receipt is committed while the file of claims is locked, so no other claim comes between a
// claim and its receipt. A COMMIT lacks an answer only if the disk hangs or fails. Its outcome is
// known when the disk answers.
//
// # Durability
//
// Before a call returns, the receipt of a transaction is on disk if PRAGMA synchronous of its
// connection is FULL, as with [Open], and by default in SQLite. Other receipts, and claims that
// are remembered after their lease, are always on disk before the call returns. All other claims
// survive the end of a process, but not a power failure, which also ends the processes that held
// them. Calls that arrive together share one wait for the disk.
//
// A process that is stopped, and not killed, keeps its locks on the files. If it had written in a
// transaction, no other work can write meanwhile: SQLite has no server that could end it.
//
// A call waits for the disk no longer than its context.
package sqlitestore
