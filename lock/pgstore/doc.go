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
// With transactions, work without a receipt did not happen, and work with a receipt happened once. How
// this store differs from its siblings for MySQL and SQLite is a table in the documentation of
// [github.com/httplatch/httplatch/lock/internal/rowstore].
//
// # Connections
//
// Each transaction of the work takes a connection of the pool that the store was given, for as
// long as the work runs. All other calls, such as claims, renewals and clean-up, use a few of the
// store's own connections to the same database. So renewals go on even if work holds every
// connection of the pool. The store dials its own connections with the pool's settings when it
// needs the first, to the primary if there are several hosts. [Store.Close] closes them. Work
// waits for a connection as long as its caller waits, 10 s at most.
//
// Waiters poll: they are not notified when a key is free. Behind PgBouncer in transaction mode,
// everything works. A PgBouncer older than 1.21, or one without
// max_prepared_statements, needs a pool that prepares no statements:
// default_query_exec_mode=exec in its URL.
//
// # Overload
//
// The store measures how fast waiting calls get a connection. A claim that would not be
// served in half of its time is refused at once, as not applied, with an error that matches
// [lock.ErrDenied]. A claim whose work would wait for a connection of the pool for more than 5 s
// is refused in the same way. Renewals, receipts and releases are not refused.
//
// # Durability
//
// A claim of work in a transaction does not wait for the disk: if the server loses the claim in a
// crash, the receipt finds no claim, and the work is rolled back. All other grants, renewals and
// receipts are on disk before the call returns, if the server's settings are safe.
//
// Leases end by the server's clock, clock_timestamp(). If the clock is set back, leases
// last longer by the difference, and nothing is granted twice. If it is set forward, leases end
// earlier than their holders expect. [lock.WithFencing] guards against that, and
// work in a transaction is not affected: its receipt is refused with the claim.
//
// Renewals of a record, and [lock.Commit], write a row of their own. So work that has its snapshot
// settles its claim at any isolation level.
//
// A COMMIT is never cancelled, neither when its caller's time is over nor when its connection
// fails: with a synchronous standby, a cancelled COMMIT would be visible and not safe. After a
// COMMIT without an answer, the store asks for the outcome by a write, which no standby can
// answer. The write takes the claim away from the transaction, so a COMMIT that arrives later
// finds no claim. The driver's tracers see neither the receipt nor the COMMIT.
//
// Work that has sent a COMMIT of its own gets its receipt separately. If nothing shows how the work has
// ended its transaction, the outcome is unknown, and an empty receipt is left.
//
// A fence is drawn after its claim has won the key, in the same transaction, so that the
// fences of a key rise in the order of its grants.
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
