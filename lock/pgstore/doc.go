// Package pgstore keeps the entries of a lock.Locker in a table of PostgreSQL, 13 or
// later. It is a whole [lock.Store], and the one whose receipts can be committed with the
// work that they are of ([lock.WithTransaction], [Tx]):
//
//	store := pgstore.New(pool)
//	once := latch.Idempotent(lock.New(store, lock.WithTransaction()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
//	func createOrder(w http.ResponseWriter, r *http.Request) {
//		tx, _ := pgstore.Tx(r.Context())
//		_, err := tx.Exec(r.Context(), `INSERT INTO orders ...`)
//
// What has no receipt did not happen then, and what has one happened once.
//
// # Connections
//
// Transactions of the work take connections of the pool that the store was given, one for
// as long as the work runs. All else, claims, renewals and clean-up among it, has a few
// connections of the store's own to the same database, so that work which holds every
// connection of the pool starves no renewal. They are dialled with the pool's settings when
// the first is needed, to the primary if there are several hosts, and [Store.Close] closes
// them. Work waits for a connection as long as its caller does, 10 s at most.
//
// Waiters ask from time to time: they are not notified when a key is free. Behind PgBouncer in transaction mode,
// everything works. A PgBouncer older than 1.21, or one without
// max_prepared_statements, needs a pool that prepares no statements:
// default_query_exec_mode=exec in its URL.
//
// # Overload
//
// The store measures how fast calls that wait get a connection. A claim that would not be
// served in half of its time is refused when it comes, as not applied: an error that matches
// [lock.ErrDenied]. So is one whose work would wait for a connection of the pool for more
// than 5 s. Renewals, receipts and releases are not refused.
//
// # Durability
//
// A claim of work in a transaction is not waited for until it is on disk: if the server
// crashes and has lost it, the receipt finds no claim, and the work is rolled back with it.
// All other grants, renewals and receipts are on disk before they are answered, as far as
// the server's settings go.
//
// Leases are judged by the server's clock, clock_timestamp(). If that is set back, leases
// last for longer by as much: nothing is granted twice. If it is set forward, leases end
// earlier than their holders think; [lock.WithFencing] is for those who fear that, and
// work in a transaction is not touched by it: its receipt is refused with the claim.
//
// A COMMIT is never cancelled, neither when its caller's time is over nor when its connection
// fails: with a synchronous standby, that would make it visible and not safe. What became of
// one without an answer is asked by a write, which no standby answers, and which takes the
// claim away from the transaction: what arrives later finds none. The driver's tracers see
// neither the receipt nor the COMMIT.
//
// A fence is drawn when its claim has won the key, in the same transaction, so that the
// fences of a key rise in the order of its grants.
//
// # Privileges
//
// [Schema] needs CREATE on the schema. The role of the store then needs:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON latch_entries TO shop;
//	GRANT USAGE ON SEQUENCE latch_entries_fence TO shop;
//
// To end the session of a COMMIT that has never arrived, and that has rows locked, it needs
// no more, as long as the work's transactions have the same role.
package pgstore
