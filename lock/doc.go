// Package lock lets one holder at a time work on a key, across processes, and
// keeps no caller locked out because a packet was lost.
//
//	locker := lock.New(redisstore.New(client, redisstore.WithPrefix("shop:")))
//	err := locker.Do(ctx, lock.Key("user", "42"), func(ctx context.Context) error {
//		return placeOrder(ctx)
//	})
//	if errors.Is(err, lock.ErrHeld) {
//		// another caller is working on it
//	}
//
// [Locker.Do] is mutual exclusion. [Locker.Once] runs work once and gives
// every caller that asks for it the same receipt; it is the same object a moment
// later: a lock that its holder leaves a receipt in.
//
// # What is promised
//
// A grant is a lease: at any time at most one holder has a valid one on a key.
// Validity is measured by the holder's own monotonic clock, from before the
// first send of its claim, so that a slow answer makes it shorter and never
// longer. A living holder renews it; a dead one blocks the key for at most
// [WithLease]. A holder whose lease ended early is notified by the cancellation of
// its context, with a cause that matches [ErrLost].
//
// A call to the store ends as applied, as not applied, or as unknown, and
// unknown is never taken for either. Every call may be repeated for the same
// token, so a repetition is the recovery: it finds out what became of the first
// send, and takes the key if that had taken it. A claim that got no answer
// within [WithBudget] is removed in the background, and never stands in the way of
// the process that sent it.
//
// Certainty costs no more than the store can spare. A call is sent again, and
// something is cleaned up, only if the retry budget pays for it: a fifth for each
// answered call, and ten a second ([Stats] shows it). So a store that serves too
// little is asked for less, and serves all again as soon as it can.
//
// # What is not
//
// A lease is not mutual exclusion under every fault. A process that is paused
// for longer than its lease does not know it until it wakes up; a Redis that
// fails over can forget an entry that it had confirmed. If that must not do
// harm, give the [Lease.Fence] to the resource that is written to and let it
// refuse a lower one, or use a constraint of the database.
//
// # Stores
//
// [NewMemory] serves one process. Package redisstore serves many, over Redis or
// Valkey, on one node, in a Cluster, or behind Sentinel. [NewQuorum] makes one
// store for locks and cool-downs of three or more independent ones, and works on while
// a minority of them is down. [NewSealed] encrypts the receipts in any of these. A store of your own
// implements [Store].
package lock
