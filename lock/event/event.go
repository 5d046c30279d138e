// Package event names what a Locker reports to its observers: [lock.Event] has the rest.
//
// [lock.Event]: https://pkg.go.dev/github.com/httplatch/httplatch/lock#Event
package event

// Kind says what has happened to a key. The text is stable and fit for a metric label.
type Kind string

// The kinds.
const (
	Claimed     Kind = "claimed"     // a key was granted
	Recovered   Kind = "recovered"   // granted, after a send of the same claim had got no answer
	TakenOver   Kind = "taken_over"  // granted, in place of a holder that had vanished
	HandedOver  Kind = "handed_over" // a key was handed over by its holder, and waits for a resume
	Resumed     Kind = "resumed"     // granted, by a ticket
	Refused     Kind = "refused"     // a key was refused; Err says why
	Replayed    Kind = "replayed"    // a receipt was found
	Renewed     Kind = "renewed"     // a lease was prolonged
	Lost        Kind = "lost"        // a lease ended before its work
	Released    Kind = "released"    // a key was freed by its holder
	Settled     Kind = "settled"     // a receipt was left
	Unknown     Kind = "unknown"     // a call got no answer and may have been applied
	Reaped      Kind = "reaped"      // an entry of a claim that got no answer was found and removed
	Unavailable Kind = "unavailable" // the store did not serve a call, certainly without effect
	Bypassed    Kind = "bypassed"    // work runs unprotected, as lock.WithFailOpen allows
	Skipped     Kind = "skipped"     // work runs unguarded: it has no key, and need not have one
	Rejected    Kind = "rejected"    // refused before any key was asked for; Err says why, and has a Class() string
)
