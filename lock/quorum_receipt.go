package lock

import (
	"context"
	"slices"
	"time"
)

// find is a receipt that some nodes have and others lack.
type find struct {
	turn  chan struct{} // to write it: one node after the other; it has room for one
	entry Entry
	node  int       // that has it
	until time.Time // when it ends, at the latest; zero if that is not known yet
}

func newFind(e Entry, node int) *find {
	return &find{turn: make(chan struct{}, 1), entry: copied(e), node: node}
}

// left returns for how long a copy of the receipt may be kept; known is false if
// that could not be found out. A copy must not end later than what it was made
// from, or claims that keep finding it would keep it alive for ever; so it ends
// earlier by what its writing may take.
func (f *find) left(ctx context.Context, q *quorum, key string) (d time.Duration, known bool) {
	if f.until.IsZero() {
		began := time.Now()
		ctx, cancel := q.within(ctx)
		defer cancel()
		e, err := q.nodes[f.node].Get(ctx, key)
		if err != nil || e.State != Settled || e.Token != f.entry.Token || e.Left <= 0 {
			return 0, false
		}
		f.entry, f.until = e, began.Add(e.Left)
	}
	return time.Until(f.until) - q.timeout, true
}

// recall ends a claim that has met a receipt: what it took is undone, and the
// nodes that lack the receipt get it.
func (b *ballot) recall(ctx context.Context) {
	b.found = newFind(b.entry, b.node)
	if b.entry.Left > 0 {
		b.found.until = b.began.Add(b.entry.Left)
	}
	b.token.lose() // before the decision: what comes after that looks there
	b.decide(ctx)
	lacking := slices.DeleteFunc(b.votes.answers, func(a answer[Entry]) bool {
		return a.err == nil && a.value.State == Settled || a.err != nil && !b.holds(a)
	})
	for _, node := range b.nodes {
		if !slices.ContainsFunc(b.rounds, func(r *round[Entry]) bool { return slices.Contains(r.asked, node) }) {
			lacking = append(lacking, answer[Entry]{node: node}) // a takeover that came no further
		}
	}
	if len(lacking) == 0 {
		return
	}
	undone := make(chan struct{})
	b.rounds[0].also(func() {
		defer close(undone)
		for _, a := range lacking {
			b.correct(ctx, a)
		}
	})
	if !slices.ContainsFunc(lacking, b.holds) {
		return
	}
	select {
	case <-undone:
	case <-ctx.Done():
	}
}

// correct puts the receipt in place of what the claim has on a node, or of what
// it has found there. A takeover is undone on one node after the other, and not
// on the next if one fails: in between, a node that had remembered an attempt is
// free, and there must never be so many of these that somebody who does not reach
// the receipt could get a majority of them.
func (b *ballot) correct(ctx context.Context, a answer[Entry]) {
	b.found.turn <- struct{}{}
	defer func() { <-b.found.turn }()
	if b.halted {
		return
	}
	held := b.holds(a) && b.token.bar(a.node)
	done := !held || b.free(ctx, a.node)
	if done {
		done = a.err == nil && (a.value.State == Settled || b.restore(ctx, b.key, a.node, b.found))
	}
	b.halted = held && !done && b.claim.Replaces != ""
}

// restore writes a receipt to a node that lacks it, and reports whether the node
// has it now. It settles what the receipt's own token has there; else it claims
// the key for that token, if it is free or abandoned. What somebody holds is left
// alone. It is called when it is f's turn.
func (q *quorum) restore(ctx context.Context, key string, node int, f *find) bool {
	keep, known := f.left(ctx, q, key)
	switch {
	case !known:
		return false
	case keep < time.Millisecond:
		// Not worth a copy, but what the token still holds there is no use any more.
		ctx, cancel := q.within(ctx)
		defer cancel()
		_, _ = q.nodes[node].Release(ctx, key, f.entry.Token)
		return false
	}
	settle := func() (bool, error) {
		ctx, cancel := q.within(ctx)
		defer cancel()
		return q.nodes[node].Settle(ctx, key, f.entry.Token, f.entry.Receipt, keep)
	}
	if ok, err := settle(); ok || err != nil {
		return ok
	}
	t := q.enter(key, f.entry.Token)
	defer t.leave()
	// If the settle fails, what the claim leaves is abandoned for as long as the
	// receipt is kept, and not free.
	claim := Claim{
		Token:       f.entry.Token,
		Attempt:     f.entry.Attempt,
		Fingerprint: f.entry.Fingerprint,
		Owner:       f.entry.Owner,
		Lease:       4 * q.timeout,
		Linger:      keep,
	}
	if !q.seize(ctx, t, node, claim) {
		return false
	}
	ok, err := settle()
	return ok && err == nil
}

// overtake deals with a claim that has landed on a node after its token was
// settled: the settle did not find it there.
func (q *quorum) overtake(ctx context.Context, t *candidate, node int) {
	if f := t.settledBy(); f != nil {
		f.turn <- struct{}{}
		defer func() { <-f.turn }()
		q.restore(ctx, t.key, node, f)
	}
}

// seize makes the entry of c on a node, in place of nothing or of an abandoned
// one. It is for tokens that a majority bears, which outweighs what a single
// node remembers.
func (q *quorum) seize(ctx context.Context, t *candidate, node int, c Claim) bool {
	for range 2 {
		if !t.wanted() {
			return false
		}
		a := answer[Entry]{node: node}
		within, cancel := q.within(ctx)
		a.value, a.err = q.nodes[node].Claim(within, t.key, c)
		cancel()
		ours := a.err == nil && a.value.State == Held && a.value.Token == c.Token
		if (ours || a.unknown()) && t.bar(node) {
			q.free(ctx, t, node)
			return false
		}
		if ours || a.err != nil || a.value.State != Abandoned || a.value.Token == c.Token {
			return ours
		}
		c.Replaces = a.value.Token
	}
	return false
}
