// Package redisstore keeps the entries of package lock in Redis or Valkey, 6.2
// or later: on one server, behind Sentinel, or in a Cluster.
//
//	store, err := redisstore.Open(ctx, "redis://127.0.0.1:6379", redisstore.WithPrefix("shop:"))
//	...
//	defer store.Close()
//	locker := lock.New(store)
//
// or, over a client that the program has anyway:
//
//	locker := lock.New(redisstore.New(client, redisstore.WithPrefix("shop:")))
//
// The prefix names the service. All processes of one service have the same, and
// two services never do: they would get each other's answers ([WithPrefix]).
//
// # What it promises
//
// One call is one attempt: a command is sent once, whatever retries the client
// is set to, and never after the call's context has ended. A reply that is lost
// makes the outcome unknown; the same call again, with the same token, finds out
// and completes what was meant. Errors match [lock.ErrNotApplied] only if the
// command was provably never written, or if a server refused it by a code that
// is known to come before execution. Everything else, a proxy's "upstream
// failure" for one, counts as unknown.
//
// # What it does not
//
// Redis replicates asynchronously. A failover can lose an entry that was just
// made, and then another caller gets the key; so can a server that restarts
// without its data, or one that evicts. A lock with a fence ([lock.Claim]'s
// Fenced) lets the protected resource notice. Fences follow the server's clock,
// so they grow across lost entries and failovers to within what the clocks of
// the servers differ by.
//
// Redis ends entries by its wall clock. One that is set forward ends leases early, and
// lets another caller in while the holder still relies on its own; one that is set back
// keeps keys taken for longer. Have the server's clock slewed, not stepped.
//
// # Round trips
//
// Up to 12 commands in flight to one server, or one if GOMAXPROCS is 1, each goes its own way,
// as what is larger than 16 KiB always does. Above that callers share round trips: their commands wait
// in a queue, and what is queued is sent as one pipeline of at most 32 when an earlier
// one was answered. Nothing else changes:
//
//   - Every call returns when its own context ends, and no caller's context ends
//     another's command. What has not left the queue is never written, and reported as
//     [lock.ErrNotApplied].
//   - An error reply is that of one command. A connection that dies or stalls costs
//     the members of one batch one try: they are unknown, and a Locker sends them
//     again. The others go on over other connections.
//   - 4 batches are in flight at once, and up to 32 where the round trip is long, each
//     over a connection of the client's pipeline pool. [Open] makes that as large; on a
//     client of your own, set PipelinePoolSize to 32, its default being 10.
//   - A batch has one node of a Cluster. A command whose slot has moved goes again
//     by itself.
//   - A batch is never repeated, whatever MaxRetries says.
//   - Hooks of the client see a pipeline, with a context of its own; in a Cluster
//     those of the node (OnNewNode) do, and those of the cluster client do not.
//
// # Overload
//
// A server that is asked for more than it can do is given no more than it can answer
// in a small part of a budget; the rest waits in the queue. While there is one, the
// store measures how many claims a second the server grants. A claim that would not be
// served in its time by that rate is refused when it comes, as not applied: an error
// that matches [lock.ErrDenied], after microseconds and not after a budget. Renewals,
// settles and releases go before claims and are not refused; clean-up goes with the
// claims. An idle server, a steady one and a burst are refused nothing.
//
// A call that returned may have left its command in flight. A Locker is notified when
// that has ended, and knows from it what it has to clean up.
//
// Commands over a client that [Open] has made are sent on the goroutine of their caller
// while few are in flight. A client that is given to [New] may have hooks, a Limiter or
// a credentials provider that take their time, so its commands never are.
//
// A panic in what a user has hung into the client (a hook, a Limiter, a Dialer,
// OnConnect, a credentials provider) makes the outcome of the calls that run into
// it unknown, on whichever goroutine it happens, and is logged. On the goroutine of
// a caller that uses a Store without a Locker it is the caller's.
//
// # Waiting
//
// Callers that wait for another process ([lock.WithWait]) poll. With
// [WithNotifications] they are also notified, by publish and subscribe, and have the
// key about as soon as it is free. That is a hint: what is lost, or refused by a
// missing permission, costs the poll that it would have saved.
//
// # The server
//
// [Store.Check], which [Open] runs, says what is not as it should be:
//
//   - maxmemory-policy must be noeviction, or maxmemory 0. The volatile-*
//     policies pick locks first, because all of them expire.
//   - the user needs, with the prefix of [WithPrefix],
//     ~latch:* +get +set +del +pttl +pexpire +time +eval +evalsha +scan +info +ping +client|setname
//     and in a Cluster +cluster|slots +command, for a database other than 0
//     +select. Clients that identify themselves to the server, as go-redis does
//     unless configured otherwise, also try +client|setinfo and
//     +client|maint_notifications, and do without. [WithNotifications] needs
//     &latch:* +publish +subscribe +unsubscribe
//     too: every release is published on the channel that has the entry's name.
//     With +multi +exec a receipt of 64 KiB or more is no argument of a script: 1 MiB
//     then holds up a server for 0.1 ms, and for 3.4 ms without.
//   - before Redis 7 a claim is a script instead of a plain SET, by itself.
//   - from Valkey 9.0 or Redis 8.4 on a renewal, a settle and a release of a lock
//     without a fence are one plain command each (SET with IFEQ, DELIFEQ, DELEX), by
//     itself, and cost the server half of what a script does. Which a server has is
//     learned from its answers. A release needs +delifeq or +delex for that; without,
//     it stays a script.
//
// # Names
//
// An entry is one string key, "shop:lock:user=42" with the prefix "shop:", and all
// commands are on one key. Bytes other than letters, digits and "._~=&/-" are
// percent-encoded, so that neither globs nor hash tags mean anything; what is
// longer than 200 bytes then is "#" and a hash. Keys of receipts, which begin with
// "once:", are "shop:once:...". List what is there with SCAN, or with [Store.List].
package redisstore
