package lock

import (
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// GrantWhileLooking grants a lease just after a queue of alarms that looks through the local keys
// has passed it, and reports whether it will come back to it. From outside no
// test can stop a look there: one that granted thousands of leases in the instant of a
// look missed the fault in half of its runs.
func GrantWhileLooking() (found bool) {
	var a alarms
	a.init(func() {})
	defer a.Stop()
	e := new(Lease)
	e.local.Due = clock.Now().Add(time.Hour)
	a.lookBefore(clock.Now())
	waitsForShard := false
	a.start(func(yield func(*Lease) bool) {
		yield(e)
		e.claim.standing.grant()
		waitsForShard = !a.sees(e.local.Due) // as keyShard.expect
	})
	if waitsForShard {
		a.lookBefore(e.local.Due)
	}
	return e.local.Queued() || clock.Moment(a.look.Load()) <= e.local.Due
}
