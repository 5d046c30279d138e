// Package pgstore keeps the entries of a lock.Locker in a table of PostgreSQL, 13 or
// later. It is a whole [lock.Store], and can commit a receipt together with the work
// ([lock.WithTransaction], [Tx]):
//
//	store := pgstore.New(pool)
//	once := latch.Idempotent(lock.New(store, lock.WithTransaction()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
//	func createOrder(w http.ResponseWriter, r *http.Request) {
//		tx, _ := pgstore.Tx(r.Context())
//		_, err := tx.Exec(r.Context(), `INSERT INTO orders ...`)
//
// With transactions, work without a receipt did not happen, and work with a receipt happened once. Which
// connections the store uses, when it refuses claims, what a clock that is set does to leases, and how
// this store differs from its siblings for MySQL and SQLite, is in the documentation of
// [github.com/httplatch/httplatch/lock/internal/rowstore].
//
// # Connections
//
// The store dials its own connections with the pool's settings when it needs the first, to the primary
// if there are several hosts. [Store.Close] closes them. A PrepareConn of the pool must not panic: as in the
// pool itself, its connection is then lost.
//
// Behind PgBouncer in transaction mode, everything works. A PgBouncer older than 1.21, or one without
// max_prepared_statements, needs a pool that prepares no statements: default_query_exec_mode=exec in
// its URL. Then bytea_output has to be hex, its default.
//
// # Durability
//
// A claim of work in a transaction does not wait for the disk: if the server loses the claim in a
// crash, the receipt finds no claim, and the work is rolled back. All other grants, renewals and
// receipts are on disk before the call returns, if the server's settings are safe.
//
// Renewals of a record, and [lock.Commit], write a row of their own. So work that has its snapshot
// settles its claim at any isolation level.
//
// The driver's tracers see neither the receipt nor the COMMIT.
//
// Work that has sent a COMMIT of its own gets its receipt separately. If nothing shows how the work has
// ended its transaction, the outcome is unknown, and an empty receipt is left.
//
// # Privileges
//
// [Schema] needs CREATE on the schema. The role of the store then needs:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON latch_entries TO shop;
//	GRANT USAGE ON SEQUENCE latch_entries_fence TO shop;
//
// With these privileges it can also end a session that holds row locks and whose COMMIT has never
// arrived, as long as the work's transactions have the same role.
package pgstore
