package history_test

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/httplatch/httplatch/lock"
)

// state is the state of one key, as far as the operations up to now show it.
type state struct {
	kind    lock.State // Free, Held (lapsed or not) or Settled
	token   string
	receipt string
	fence   int64 // of the entry, or the last one if it is free
	exact   bool  // false: the fence is this or a higher one
	linger  time.Duration
	longest time.Duration // that the lease, or the receipt, was made or prolonged by
	end     span
	lapsed  bool  // the lease is over for certain
	now     int64 // it is not earlier than this
	ended   bool
}

// rules are the contract of lock.Store as a specification of one key that does
// one thing after the other.
type rules struct{ slack time.Duration }

// model has an operation of unknown outcome take effect where it has one, at any
// time that it can have come at, or else come to nothing after the end. What it
// does not change it need not be tried on.
func (r rules) model() porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, out any) []any {
			var next []any
			for _, after := range r.step(s.(state), in.(call), out.(answer)) {
				next = append(next, after)
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(state) == b.(state) },
		Hash:              func(s any) uint64 { return maphash.Comparable(seed, s.(state)) },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v: %s", in, out.(answer).describe(in.(call).verb)) },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
	return m.ToModel()
}

// step returns what can be after in was answered with out, nothing if it cannot
// have been.
func (r rules) step(s state, in call, out answer) []state {
	switch {
	case in.verb == opEnd:
		s.ended = true
		return []state{s}
	case s.ended:
		return []state{s}
	}
	var next []state
	for _, m := range s.moments(in) {
		after, change, ok := r.apply(m, in, out)
		if ok && (change || out.known) {
			next = append(next, after)
		}
	}
	if !out.known && len(next) > 0 {
		next = append(next, s)
	}
	return next
}

// apply does in at m. ok is false if out is not the answer to that.
func (r rules) apply(m moment, in call, out answer) (after state, change, ok bool) {
	held := (m.phase == lock.Held || m.phase == lock.Abandoned) && m.token == in.token
	switch in.verb {
	case opClaim:
		replaced := (m.phase == lock.Abandoned || in.held && m.phase == lock.Held) && m.token == in.replaces
		if m.phase == lock.Free && in.replaces == "" || replaced {
			return r.grant(m, in, out)
		}
		return r.show(m, out)
	case opGet:
		return r.show(m, out)
	case opFound:
		// Or it was granted, and over before it was answered.
		return m.state, false, m.phase != lock.Free || in.lease <= time.Duration(in.to-in.from)+r.slack
	case opRenew:
		if held {
			m.prolong(in, r.slack)
		}
		return m.state, held, out.is(held)
	case opSettle:
		settled := m.phase == lock.Settled && m.token == in.token
		if held {
			m.settle(in, r.slack)
		}
		return m.state, held, out.is(held || settled)
	case opRelease, opForget:
		free := held || in.verb == opForget && m.phase == lock.Settled && m.token == in.token
		if free {
			m.state = state{now: m.now, fence: m.fence}
		}
		return m.state, free, out.is(free)
	default:
		panic(in.verb)
	}
}

func (a answer) is(ok bool) bool { return !a.known || a.ok == ok }

// grant makes the entry of a claim.
func (r rules) grant(m moment, in call, out answer) (after state, change, ok bool) {
	got := out.entry
	after = state{
		kind: lock.Held, token: in.token, fence: m.fence, exact: true,
		linger: in.linger, longest: in.lease + r.slack, end: m.ending(in.lease, r.slack), now: m.now,
	}
	switch {
	case in.fenced && out.known:
		ok = got.fence > m.fence
		after.fence = got.fence
	case in.fenced:
		ok = true
		after.fence, after.exact = m.fence+1, false
	default:
		ok = got.fence == 0
	}
	if !out.known {
		return after, true, true
	}
	passed := in.lease - got.left // as far as the store says so
	ok = ok && passed >= 0 && passed <= time.Duration(m.late-m.from)+r.slack
	return after, true, ok && got.state == lock.Held && got.token == in.token
}

// show leaves the entry as it is, and has it for an answer.
func (r rules) show(m moment, out answer) (after state, change, ok bool) {
	got := out.entry
	switch {
	case !out.known:
		return m.state, false, true
	case got.state != m.phase:
		return m.state, false, false
	case m.phase == lock.Free:
		return m.state, false, got == entry{}
	case got.token != m.token, got.receipt != m.receipt, got.fence < m.fence, m.exact && got.fence != m.fence:
		return m.state, false, false
	}
	m.fence, m.exact = got.fence, true
	return m.state, false, m.tell(got.left, r.slack)
}

// prolong makes the lease end no earlier, and the linger no shorter, than in
// says.
func (m *moment) prolong(in call, slack time.Duration) {
	m.linger = max(m.linger, in.linger)
	m.longest = max(m.longest, in.lease+slack)
	until := m.ending(in.lease, slack)
	if m.lapsed {
		m.end, m.lapsed = until, false
		return
	}
	m.end = span{max(m.end.lo, until.lo), max(m.end.hi, until.hi)}
}

// settle makes the entry a receipt.
func (m *moment) settle(in call, slack time.Duration) {
	m.kind, m.receipt, m.linger, m.lapsed = lock.Settled, in.receipt, 0, false
	m.longest, m.end = in.lease+slack, m.ending(in.lease, slack)
}

func (s state) String() string {
	text := s.kind.String()
	if s.kind != lock.Free {
		text += " " + s.token
	}
	if s.receipt != "" {
		text += " " + s.receipt
	}
	if s.kind != lock.Free && s.end != unending {
		text += fmt.Sprintf(", ends %v to %v", time.Duration(s.end.lo), time.Duration(s.end.hi))
	}
	if s.lapsed {
		text += ", lapsed"
	}
	return text
}
