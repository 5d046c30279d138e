package lock

import "time"

// GrantWhileLooking grants a lease just after a queue of alarms that looks through the local keys
// has passed it, and reports whether it will come back to it. From outside no
// test can stop a look there: one that granted thousands of leases in the instant of a
// look missed the fault in half of its runs.
func GrantWhileLooking() (found bool) {
	var a alarms
	a.init(func() {})
	defer a.stop()
	e := new(Lease)
	e.local.due = now().add(time.Hour)
	a.lookBefore(now())
	waitsForShard := false
	a.start(func(yield func(*Lease) bool) {
		yield(e)
		e.claim.standing.grant()
		waitsForShard = !a.sees(e.local.due) // as keyShard.expect
	})
	if waitsForShard {
		a.lookBefore(e.local.due)
	}
	return e.local.queued() || moment(a.look.Load()) <= e.local.due
}
