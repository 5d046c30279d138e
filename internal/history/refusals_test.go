package history_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/httplatch/httplatch/lock"
)

// trace is the time in which a token can have been at its key.
type trace struct {
	client int
	from   int64 // of its first claim
	until  int64 // its release was answered, or never
	doubt  bool  // one of its claims was not answered, and can land later
}

// traces returns the trace of each token.
func (h *history) traces() map[string]trace {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]trace{}
	for _, r := range h.records {
		t, known := all[r.in.token]
		switch {
		case r.in.verb == opClaim:
			if !known {
				t = trace{r.client, r.in.from, never, false}
			}
			t.from = min(t.from, r.in.from)
			t.doubt = t.doubt || !r.out.known
			all[r.in.token] = t
		case r.in.verb == opRelease && known && r.out.ok:
			t.until = min(t.until, r.returned)
			all[r.in.token] = t
		}
	}
	for token, t := range all {
		if t.doubt {
			t.until = never
			all[token] = t
		}
	}
	return all
}

// refusedBy returns the token that refused a claim.
func (r record) refusedBy() (token string, ok bool) {
	e := r.out.entry
	return e.token, r.in.verb == opClaim && r.out.known && e.state == lock.Held && e.token != r.in.token
}

// roomsOf returns the operations of buyers, by room.
func (h *history) roomsOf(buyers []*buyer) map[string][]porcupine.Operation {
	traces := h.traces()
	h.mu.Lock()
	defer h.mu.Unlock()
	end := h.now()
	all := map[string][]porcupine.Operation{}
	add := func(client int, m moved) {
		h.counts.add("moves", m.step.String(), 1)
		all[m.room] = append(all[m.room], porcupine.Operation{ClientId: client, Input: m.move, Call: m.from, Return: min(m.to, end+1)})
	}
	for _, b := range buyers {
		for _, m := range b.moves {
			add(b.store.client, m)
		}
	}
	for _, r := range h.records {
		token, refused := r.refusedBy()
		if !refused || r.label == "" {
			continue
		}
		m := moved{move{step: stepRefused, grips: []grip{{placeOf(r.in.key), token}}}, r.label, r.in.from, r.returned}
		if t, known := traces[token]; known && max(t.from, m.from) <= min(t.until, m.to) {
			m.landed, m.from, m.to = true, max(t.from, m.from), min(t.until, m.to)
		}
		add(r.client, m)
	}
	for room := range all {
		all[room] = append(all[room], porcupine.Operation{Input: move{step: stepEnd}, Call: end, Return: end})
	}
	return all
}

// standoffError is attempts that refused each other, although each of them ended without a grant.
type standoffError struct{ tries []try }

func (e *standoffError) Error() string {
	return fmt.Sprintf("%d attempts refused each other in %q, and none was granted", len(e.tries), e.tries[0].room)
}

// standoff returns an error if attempts to take sets refused each other in a circle. If keys are
// claimed in one order, that cannot be: a caller that is refused holds no key behind the one
// that refused it. So of callers that refuse each other the last in the line was granted, or
// held by a holder.
func (h *history) standoff(buyers []*buyer) error {
	traces := h.traces()
	byClient := map[int][]try{}
	for _, b := range buyers {
		byClient[b.store.client] = b.tries // in order of time
	}
	at := func(client int, when int64) (t try, ok bool) {
		tries := byClient[client]
		i, is := slices.BinarySearchFunc(tries, when, func(t try, when int64) int { return cmp.Compare(t.from, when) })
		if !is {
			i--
		}
		if i < 0 || when > tries[i].to {
			return t, false
		}
		return tries[i], true
	}
	// The attempt whose claim was in the way of each refused attempt, in the end.
	blocked := map[try]try{}
	h.mu.Lock()
	for _, r := range h.records {
		token, refused := r.refusedBy()
		if !refused {
			continue
		}
		loser, ok := at(r.client, r.in.from)
		if !ok || loser.end != tryRefused {
			continue
		}
		delete(blocked, loser)
		t, known := traces[token]
		if !known || t.doubt {
			continue // it may have landed after its own attempt
		}
		if winner, ok := at(t.client, t.from); ok && winner.end == tryRefused {
			blocked[loser] = winner
		}
	}
	h.mu.Unlock()
	for first := range blocked {
		circle := []try{first}
		for next, ok := blocked[first]; ok && !slices.Contains(circle[1:], next); next, ok = blocked[next] {
			if next == first {
				return &standoffError{circle}
			}
			circle = append(circle, next)
		}
	}
	return nil
}
