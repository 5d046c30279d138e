// Package redisstore keeps the entries of package lock in Redis or Valkey, 6.2
// or later: on one server, behind Sentinel, or in a Cluster.
//
//	store, err := redisstore.Open(ctx, "redis://127.0.0.1:6379", redisstore.WithPrefix("shop:"))
//	...
//	defer store.Close()
//	locker := lock.New(store)
//
// or, over the program's own client:
//
//	locker := lock.New(redisstore.New(client, redisstore.WithPrefix("shop:")))
//
// The prefix names the service. All processes of one service have the same prefix. Two
// services never share one: they would get each other's answers ([WithPrefix]).
//
// # What it promises
//
// One call is one attempt: a command is sent once, whatever retries the client
// is set to, and never after the call's context has ended. A lost reply
// makes the outcome unknown. The same call again, with the same token, finds out
// the outcome and completes the call. Errors match [lock.ErrNotApplied] only if the
// command was provably never written, or if a server refused it by a code that
// is known to come before execution. Every other error, such as a proxy's "upstream
// failure", counts as unknown.
//
// # What it does not promise
//
// Redis replicates asynchronously. A failover can lose a new entry, and then another caller
// gets the key. So can a server that restarts without its data, or one that evicts. A lock
// with a fence ([lock.Claim]'s Fenced) lets the protected resource notice. Fences follow the
// server's clock, so they grow across lost entries and failovers, except for the difference
// between the clocks of the servers.
//
// A master that hangs for up to three seconds, while a replica takes its place behind the same
// address, and comes back as a replica without the new data, can say of a new lease that it does not
// exist, until it refuses a claim. The lease then counts as lost, and its key stays taken until it ends.
//
// Redis ends entries by its wall clock. A clock that is set forward ends leases early, and
// lets another caller in while the holder still relies on its lease. A clock that is set back
// keeps keys taken for longer. So let the server's time service slew the clock, not step it.
//
// # Connections
//
// A store has connections of its own to each server: two, one more for each 64 commands in flight
// beyond the first 64 where the round trip is long, and up to four for commands of more than 16 KiB. It
// dials them when the first command comes, with the client's own options: address, Dialer, TLS, user
// and password or CredentialsProvider, database and client name. Behind Sentinel, each dial finds
// the master, and a store in use looks once a second whether there is another. In a Cluster, the
// client says which master has a key. A connection without a command for a minute, or for a second
// behind Sentinel, is closed, and so are all of them by [Store.Close]. The end of the client does not
// end them.
//
//   - Commands of many callers share a connection, and are written while others wait for their
//     replies. Every call returns when its own context ends, and the context of one caller does not
//     end the command of another. If a context ends while its command is in the queue, the command
//     is never written, and the call returns an error that matches [lock.ErrNotApplied].
//   - An error reply belongs to one command. A connection that fails or stalls costs the commands
//     on it one try: their outcome is unknown, and a Locker sends them again, over another
//     connection. So connections that the network has dropped without a word refuse no request.
//   - The protocol is RESP 2, which every server and proxy speaks. It has no pushes.
//   - The client's pool, hooks, retries, read timeouts and log have no part in it.
//
// A client with OnConnect, a Limiter or a StreamingCredentialsProvider sends every command itself,
// through its pool and its hooks, on a goroutine of its own. So does a [redis.UniversalClient] of
// another type, such as a wrapper that traces commands. That costs more, and
// since hooks and wrappers may repeat a command, every error reply counts as unknown.
//
// # Overload
//
// To an overloaded server, the store sends only the commands that the server can answer in a small
// part of a budget. The other commands wait in the queue. While there is a queue, the store
// measures how many claims a second the server grants. If a claim would be served too late at
// this rate, it is refused at once, as not applied: with an error that matches [lock.ErrDenied],
// after microseconds and not after a budget. Renewals, settles and releases go before claims and
// are not refused. Clean-up queues with the claims. No claim is refused for an idle server, at a
// steady load, or in a burst.
//
// A call that returned may have left its command in flight. The Locker is notified when the
// command has ended, and decides by its outcome whether to clean up.
//
// A panic in a user's part of the client (a hook, a Limiter, a Dialer, OnConnect, a credentials
// provider) is logged, and fails the calls affected by it.
//
// # The server
//
// [Store.Check], which [Open] runs, reports a server that differs from these requirements:
//
//   - maxmemory-policy must be noeviction, or maxmemory 0. The volatile-*
//     policies pick locks first, because all of them expire.
//   - the user needs, with the prefix of [WithPrefix],
//     ~latch:* +get +set +del +pttl +pexpire +time +eval +evalsha +scan +info +ping +client|setname
//     and +multi +exec, without which a receipt of 1 MiB occupies the server for 3.4 ms instead of
//     0.1 ms. In a Cluster it needs +cluster|slots +command, for a database other than 0
//     +select. The client itself, which asks a Cluster for its masters, also tries +client|setinfo and
//     +client|maint_notifications, unless configured otherwise, and does without. [WithNotifications] needs
//     &latch:* +publish +subscribe +unsubscribe
//     too: every release is published on the channel that has the entry's name.
//   - before Redis 7, a claim is a script instead of a plain SET. The store detects this.
//   - from Redis 8.4 on, and Valkey 8.1 (9.0 for a release), a renewal, a settle and a release
//     of a lock without a fence are one plain command each (SET with IFEQ, DELIFEQ, DELEX), at
//     half the cost of a script for the server. The store learns from a server's answers which
//     of these it has. A release needs the permission +delifeq or +delex; without it,
//     a release stays a script.
//
// # Names
//
// An entry is one string key, "shop:lock:user=42" with the prefix "shop:", and all
// commands are on one key. Bytes other than letters, digits and "._~=&/-" are
// percent-encoded, so globs and hash tags in a key have no special meaning. A name of more
// than 200 bytes becomes "#" and a hash. Keys of receipts, which begin with
// "once:", are "shop:once:...". SCAN and [Store.List] list the entries.
package redisstore
