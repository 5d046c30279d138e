// Package history holds the tests that check the protocol of package lock for linearizability,
// over a real Redis and a real PostgreSQL, under faults. It has only tests, and is a separate module
// so that its checker enters no other go.mod.
//
// Many clients claim, renew, settle, release and take over a few keys at once,
// through a proxy that loses, holds and forges what passes. What each of them
// asked, and was answered, is recorded with its times. A history is right if
// there is an order of its operations, each at some moment between its call and
// its return, in which a plain sequential lock would have given the same
// answers. Porcupine looks for one, key by key.
//
// # What counts as what
//
// An answer is one of three. What was answered took effect exactly once. What
// failed with an error that matches lock.ErrNotApplied never did: it is not
// part of the history, so that any effect it had is one that nothing explains.
// What failed otherwise took effect at any time after its call, after its
// return and after the end of its client, or never; only a fenced claim, which
// Redis refuses when it comes too late, did so by the deadline of its call
// or never.
//
// # Time
//
// Most histories have leases that outlast them, so that nothing ends unless
// a client ends it. In the others leases, lingers and receipts are short, and
// their ends are part of the specification: an entry may have lapsed if the
// latest moment at which the operation can have come is one at which the lease
// can have been over, and must have lapsed if even the earliest is one at which
// it was. When a lease ends is known to within the operation that made it, and
// every answer narrows that: that it still ran, that it was over, how much was
// left. A busy machine makes operations longer and the check weaker, never
// wrong.
//
// # What shows that the check can fail
//
// The same histories over stores that are wrong on purpose, in one way each,
// are found illegal: see twins_test.go. What they do not show is that anything
// ever succeeds, or in time: that is for the tests of packages lock and faults.
//
// # Running it
//
//	GOWORK=$PWD/all.work go test -race ./internal/history -v -histories 1000 -histories.pg 210 -seed 7
//
// The seed fixes what the clients intend and which faults are drawn; how they
// interleave is the machine's doing, so that a failure is not repeated by its
// seed alone. The picture of a history that is illegal is written to
// $TEST_ARTIFACTS, or to a temporary directory, and the failure says where.
package history
