package lock

import "time"

// GrantWhileLooking grants a lease just after an agenda that looks through the gate
// has passed it, and reports whether the agenda will come back to it. From outside no
// test can stop a look there: one that granted thousands of leases in the instant of a
// look missed the fault in half of its runs.
func GrantWhileLooking() (found bool) {
	var a agenda
	a.init(func() {})
	defer a.stop()
	e := &Lease{due: now().add(time.Hour)}
	a.lookBefore(now())
	waitsForShard := false
	a.start(func(yield func(*Lease) bool) {
		yield(e)
		e.standing.grant()
		waitsForShard = !a.sees(e.due) // as gateShard.expect
	})
	if waitsForShard {
		a.lookBefore(e.due)
	}
	return e.place > 0 || moment(a.look.Load()) <= e.due
}
