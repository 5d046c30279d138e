package history_test

import (
	"math"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// never is later than the end of every history.
const never = int64(math.MaxInt64)

// endless is a lease or a keep that outlasts every history. Its end is not
// followed, so that a history of such leases only is checked exactly.
const endless = time.Hour

// clockSlack is by how much the server's clock, which counts whole milliseconds, and ours may
// differ in a duration. A clock that is set during a history adds the time by which it was set; see
// history.slack.
const clockSlack = 3 * time.Millisecond

// span is the end of a lease, or of a receipt: between lo and hi. The end is not known more
// exactly, because an operation takes effect at some time between its call and its return. Each
// answer narrows the span.
type span struct{ lo, hi int64 }

var unending = span{never, never}

// later is t+d, and never if that is later than all.
func later(t int64, d time.Duration) int64 {
	if d > 0 && t > never-int64(d) {
		return never
	}
	return t + int64(d)
}

// moment is a state at the time of an operation, as one of the things that it
// can have come to by then.
type moment struct {
	state
	phase       lock.State // with Abandoned, which the state itself does not distinguish from Held
	early, late int64      // the operation took effect between these
	from        int64      // its call
}

// moments are all that s can be when c takes effect: a lease that can have
// ended by then may have, and one that can last until then may have not. What
// each of them says about the time goes into its state, so that two answers
// which contradict each other are not both believed: an entry that was seen
// abandoned stays so, and a lease that was seen at noon has not ended before.
func (s state) moments(c call) []moment {
	// Operations take effect in an order, so not before those that were already.
	s.now = max(s.now, c.from)
	m := moment{state: s, phase: s.kind, early: s.now, late: c.to, from: c.from}
	if m.early > m.late {
		return nil
	}
	if s.kind == lock.Free || s.end == unending {
		return []moment{m}
	}
	// Whatever made or prolonged it came before c, and was for no longer than that.
	m.end.hi = min(m.end.hi, later(m.late, m.longest))
	var all []moment
	for _, phase := range []lock.State{s.kind, lock.Abandoned, lock.Free} {
		if at, ok := m.in(phase); ok {
			all = append(all, at)
		}
	}
	return all
}

// in is m if the entry is in phase.
func (m moment) in(phase lock.State) (moment, bool) {
	m.phase = phase
	switch phase {
	case lock.Held, lock.Settled:
		if m.lapsed {
			return m, false
		}
		m.end.lo = max(m.end.lo, m.early)
	case lock.Abandoned:
		if m.linger == 0 {
			return m, false
		}
		m.lapsed = true
		m.end.hi = min(m.end.hi, m.late)
		m.end.lo = max(m.end.lo, m.early-int64(m.linger))
		m.now = max(m.now, m.end.lo)
	case lock.Free:
		gone := later(m.end.lo, m.linger)
		m.state = state{now: max(m.now, gone), fence: m.fence}
		return m, m.now <= m.late
	}
	return m, m.end.lo <= m.end.hi && m.now <= m.late
}

// ending returns the end of a grant for d. A store may count from any moment of its call, for
// example from before it waited for another call.
func (m moment) ending(d, slack time.Duration) span {
	if d >= endless {
		return unending
	}
	return span{later(m.from, d-slack), later(m.late, d+slack)}
}

// tell narrows the end by how much was left at some moment of the call, and reports
// whether that can be.
func (m *moment) tell(left, slack time.Duration) bool {
	if left == 0 || m.end == unending {
		return true // not known, or not followed
	}
	if m.phase == lock.Abandoned {
		left -= m.linger
	}
	m.end.lo = max(m.end.lo, later(m.from, left-slack))
	m.end.hi = min(m.end.hi, later(m.late, left+slack))
	m.now = max(m.now, m.end.lo-int64(left+slack))
	return m.end.lo <= m.end.hi && m.now <= m.late
}
