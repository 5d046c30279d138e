// Package lock lets one holder at a time work on a key, across processes, and
// keeps no caller locked out because a packet was lost. A user needs four names:
//
//   - [New] makes a [Locker] over a store, once per process.
//   - [Locker.Do] runs a function while no other caller, here or in another process,
//     runs one for the same key. A caller that finds the key taken is refused at once,
//     or waits ([WithWait]).
//   - [Locker.Once] runs a function once for a key and keeps what it returned, the
//     receipt: every later caller gets that receipt, and runs nothing.
//   - [Key] composes a key of a name and its parts: "user=42".
//
// [Locker.DoAll] holds several keys as one, and [Locker.DoAny] one of several, such as the
// [Slots] of three exports at a time.
//
// [Lease.HandOver] gives a held key to another process, where [Locker.Resume] continues the lease.
//
// For example:
//
//	locker := lock.New(redisstore.New(client, redisstore.WithPrefix("shop:")))
//	err := locker.Do(ctx, lock.Key("user", "42"), func(ctx context.Context) error {
//		return placeOrder(ctx)
//	})
//	if errors.Is(err, lock.ErrHeld) {
//		// another caller is working on it
//	}
//
// # Which store
//
//	memstore.New()            one process, and tests
//	redisstore.New, Open      several processes over Redis or Valkey: one node, Sentinel or Cluster
//	pgstore.New(pool)         several processes over PostgreSQL; receipts in the work's own transaction
//	mysqlstore.New(db, cfg)   several processes over MySQL or MariaDB; receipts as with pgstore
//	sqlitestore.Open(ctx, f)  the processes of one machine, over a file that survives a restart; receipts as with pgstore
//	quorum.New(stores)        three or five servers that share nothing; locks only, no receipts (Redlock)
//	sealed.New(store, aead)   any of these, with encrypted receipts
//
// # What is promised
//
// A grant of a key is a lease. It ends when its holder releases it. If the process of the
// holder dies, it ends by itself: 5 s (or four budgets) after the claim of a lock, and
// [WithLease] after a claim of Once or a renewal. At any time at most one holder has a valid lease on a key. Validity is
// measured by the holder's own monotonic clock, from before the first send of its claim, so
// that a slow answer makes it shorter and never longer. A living holder renews its lease. One
// whose lease ended early is notified by the cancellation of its context, with a cause that
// matches [ErrLost].
//
// A call to the store ends as applied, as not applied, or as unknown, and unknown is never
// treated as applied or as not applied. Every call may be repeated for the same token, the
// random name of one claim. So a repetition is the recovery: it finds out the outcome of
// the first send, and has the key if the first send took it. A claim that got no answer within
// [WithBudget] is removed in the background, and never blocks the process that sent it.
//
// Retries and clean-up do not overload the store. Both are sent only while there is a retry
// budget ([Stats] shows it). The budget grows by a fifth for each answered call, and by ten a
// second. So an overloaded store gets fewer calls, and serves all calls again as soon as it can.
//
// # Words
//
//	key         what callers name; a record of Once has a key of its own in the store
//	entry       what a store has under a key: Held, Abandoned, Settled, or none
//	claim       the call that asks a store for a key; its answer is a grant or a refusal
//	lease       the time for which a grant is valid, and what its caller gets (Lease)
//	holder      the caller that has a lease; its process is the owner of the entry
//	hold        in a Snapshot, a key that this process has or claims
//	token       the random name of one claim, and the right to change its entry
//	fence       a number that grows with every grant of a key
//	run         the work of Once under one lease; a record's runs are its attempts
//	receipt     what a run leaves for later callers; a replay gives it to one of them
//	record      an entry of Once, from its first claim to the end of its keep
//	abandoned   held by a process that has vanished; the outcome of its work is unknown
//	linger      how long an abandoned entry is remembered; keep is that of a receipt
//	takeover    a claim of an abandoned entry, for the next attempt
//	release     an end that frees the key; a settle leaves a receipt, or a cool-down
//	loss        the end of a lease before the end of its work
//	call        one operation of a store, sent once or more within a budget
//	flight      the sends of a call that may still be applied, or were with no answer
//	unknown     the outcome of a call with a send that got no answer
//	orphan      an entry, or a possible one, that has a token of this process and no holder
//	clean-up    a removal of an orphan, or a repeated settle, in the background
//
// # What is not promised
//
// A lease is not mutual exclusion under every fault. A process that is paused for longer than
// its lease notices the loss only when it resumes. A Redis that fails over can forget an entry
// that it had confirmed. If two holders at once would do harm, send the [Lease.Fence], a number
// that grows with every grant, with each write, and let the resource refuse a lower number. Or
// use a constraint of the database.
//
// # For operators
//
// An [Observer] ([WithObserver]) gets each [Event], whose [EventKind] names what has happened.
// Package lockotel makes metrics and traces of the events. [Stats] are the gauges of a Locker,
// and a [Snapshot] shows its activity: each [Hold], [Cleanup] and [Recovery]. Package console
// shows the activity on a page.
//
// # For packages that build on a Locker
//
// [Locker.Store], [Locker.Keep], [Locker.Logger], [Locker.Report] and [Locker.Validate] are for
// packages that guard, configure or show the work of a Locker, as packages middleware, policy and
// console do. A program that calls [Locker.Do] and [Locker.Once] does not need them.
//
// A guard whose work is no function with a receipt, such as a handler of another protocol, calls
// [Locker.Begin] and ends the [Run] by itself. A waiter gets a [*FailedRunError], and a run in a
// transaction may end with a [*TransactionError]. With [Run.Ticket], [Locker.Amend] replaces the receipt.
//
// # For authors of stores
//
// A [Store] has five methods, which take a [Claim] and return an [Entry] in some
// [State]. latchtest.TestStore checks all its rules. A store may also implement [Inspector],
// [Transactor], [Amender], [SetClaimer] and [Describer].
package lock
