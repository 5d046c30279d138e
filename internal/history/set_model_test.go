package history_test

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// step is an action of a buyer on the keys of a room, as its caller sees it.
type step uint8

const (
	stepTake    step = iota // all keys of a set, or one permit, or one key were granted
	stepFree                // one key was released
	stepReplace             // the token of one key gave way to another: a hand-over or a resume
	stepUseUp               // a resume without an answer: the ticket may be used up
	stepSpent               // a ticket was refused, as used up
	stepLapse               // the patience of a ticket is over
	stepRefused             // a key was refused, because another token had it
	stepLost                // a set was said to have lost one of its keys
	stepEnd                 // all is done that ever is
	steps
)

func (s step) String() string {
	return [steps]string{"take", "free", "replace", "use up", "spent", "lapse", "refused by", "lost", "end"}[s]
}

// Places of a room: the keys of items, and then its permits, with room for one that there should
// not be.
const (
	items   = 5
	permits = 2
	places  = items + permits + 1
)

// grip is a token at the place of a key.
type grip struct {
	place int
	token string
}

func (g grip) String() string {
	if g.place < items {
		return fmt.Sprintf("item %d by %s", g.place, g.token)
	}
	return fmt.Sprintf("permit %d by %s", g.place-items+1, g.token)
}

// move is a step as the input of an operation.
type move struct {
	step   step
	grips  []grip // more than one for stepTake and stepLost
	next   string // the token after stepReplace
	landed bool   // of stepRefused: the token may have the key although no caller was granted it
}

func (m move) String() string {
	parts := make([]string, len(m.grips))
	for i, g := range m.grips {
		parts[i] = g.String()
	}
	return strings.TrimSpace(fmt.Sprintf("%v %s %s", m.step, strings.Join(parts, ", "), m.next))
}

// holdings is the state of a room: the token that was granted each key, "" if there is none.
type holdings struct {
	by   [places]string
	over bool
}

// setModel is the promise of sets, permits and tickets: a set is granted in one step, and only
// if no key of it is held. A claim that has landed, of a set that is not complete yet or of a
// caller that got no answer, refuses other callers while no caller was granted the key.
func setModel() porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{holdings{}} },
		Step: func(s, in, _ any) []any {
			if after, ok := s.(holdings).after(in.(move)); ok {
				return []any{after}
			}
			return nil
		},
		Equal:             func(a, b any) bool { return a.(holdings) == b.(holdings) },
		Hash:              func(s any) uint64 { return maphash.Comparable(seed, s.(holdings)) },
		DescribeOperation: func(in, _ any) string { return in.(move).String() },
		DescribeState:     func(s any) string { return s.(holdings).String() },
	}
	return m.ToModel()
}

// after is h after m, if m is possible.
func (h holdings) after(m move) (holdings, bool) {
	if h.over {
		return h, true
	}
	has := func(g grip) bool { return h.by[g.place] == g.token }
	switch m.step {
	case stepTake:
		for _, g := range m.grips {
			if h.by[g.place] != "" {
				return h, false
			}
			h.by[g.place] = g.token
		}
		return h, h.permitsHeld() <= permits
	case stepEnd:
		h.over = true
		return h, true
	case stepLost:
		return h, slices.ContainsFunc(m.grips, func(g grip) bool { return !has(g) })
	}
	g := m.grips[0]
	place := &h.by[g.place]
	switch m.step {
	case stepFree:
		ok := has(g)
		*place = ""
		return h, ok
	case stepReplace:
		ok := has(g)
		*place = m.next
		return h, ok
	case stepUseUp, stepLapse:
		if has(g) {
			*place = ""
		}
		return h, true
	case stepSpent:
		return h, !has(g)
	case stepRefused:
		return h, has(g) || m.landed && *place == ""
	default:
		panic(m.step)
	}
}

func (h holdings) permitsHeld() (n int) {
	for _, token := range h.by[items:] {
		if token != "" {
			n++
		}
	}
	return n
}

func (h holdings) String() string {
	var parts []string
	for place, token := range h.by {
		if token != "" {
			parts = append(parts, grip{place, token}.String())
		}
	}
	return strings.Join(parts, ", ")
}
