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

	attempt int  // that copies bear, if it is later than the receipt's own
	sure    bool // no later attempt can be granted the key
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
// nodes that lack the receipt get it. It reports whether a majority has it then.
// Until that is so, somebody who does not reach the nodes that have it can be
// granted the key and leave another one, so nobody may be told of it.
//
// A takeover with a majority hands that over to the receipt: the copies bear its
// number, and what an attempt in between may leave on the other nodes counts less.
func (b *ballot) recall(ctx context.Context) (told bool) {
	b.found = newFind(b.entry, b.node)
	b.found.sure = b.sure
	if b.entry.Left > 0 {
		b.found.until = b.began.Add(b.entry.Left)
	}
	ours, has := 0, 0
	for i := range b.votes.answers {
		switch a := &b.votes.answers[i]; {
		case b.votes.ours(a):
			ours++
		case a.err == nil && a.value.State == Settled:
			has++
		}
	}
	if b.votes.attempt > 0 && ours >= b.need {
		b.found.attempt = b.votes.attempt
	}
	if has < b.need {
		if left, known := b.found.left(ctx, b.quorum, b.key); known && left < time.Millisecond {
			has = b.need // by the time that others had it, it would be over
		}
	}
	b.token.lose() // before the decision: what comes after that looks there
	b.decide(ctx)
	lacking, holds := b.lacking()
	corrected := make(chan bool, len(lacking))
	b.rounds[0].also(func() {
		defer close(corrected)
		for _, a := range lacking {
			corrected <- b.correct(ctx, a)
		}
	})
	for has < b.need || holds {
		select {
		case restored, more := <-corrected:
			switch {
			case !more:
				return has >= b.need
			case restored:
				has++
			}
		case <-ctx.Done():
			return has >= b.need
		}
	}
	return true
}

// lacking returns the answers of the nodes that are to get the receipt, first of
// those that were not asked. holds says that the claim has some of them, or may.
func (b *ballot) lacking() (answers []answer[Entry], holds bool) {
	for _, node := range b.all {
		if !slices.ContainsFunc(b.rounds, func(r *round[Entry]) bool { return slices.Contains(r.asked, node) }) {
			answers = append(answers, answer[Entry]{node: node})
		}
	}
	for _, a := range b.votes.answers {
		if b.holds(a) || a.err == nil && a.value.State != Settled {
			answers = append(answers, a)
			holds = holds || b.holds(a)
		}
	}
	return answers, holds
}

// correct puts the receipt in place of what the claim has on a node, or of what
// it has found there, and reports whether it did. A takeover is undone on one node
// after the other, and not on the next if one fails, or failed when the same claim
// was sent before: in between, a node that had remembered an attempt is free, and
// there must never be so many of these that somebody who does not reach the
// receipt could get a majority of them.
func (b *ballot) correct(ctx context.Context, a answer[Entry]) (restored bool) {
	b.found.turn <- struct{}{}
	defer func() { <-b.found.turn }()
	if b.halted || a.err == nil && a.value.State == Settled {
		return false
	}
	held := b.holds(a) && b.token.bar(a.node)
	if !held || b.free(ctx, a.node) {
		restored = a.err == nil && b.restore(ctx, b.key, a.node, b.found)
	}
	b.halted = b.claim.Replaces != "" && !restored && (held || !slices.Contains(b.nodes, a.node))
	return restored
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
		return ok && err == nil
	}
	t := q.enter(key, f.entry.Token)
	defer t.leave()
	// If the settle fails, what the claim leaves is abandoned for as long as the
	// receipt is kept, and not free.
	claim := Claim{
		Token:       f.entry.Token,
		Attempt:     max(f.entry.Attempt, f.attempt),
		Fingerprint: f.entry.Fingerprint,
		Owner:       f.entry.Owner,
		Lease:       4 * q.timeout,
		Linger:      keep,
	}
	if !q.seize(ctx, t, node, claim, f.sure) {
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
// one. With sure, which says that a majority is behind c, that may be of a later
// attempt: it outweighs what a single node remembers.
func (q *quorum) seize(ctx context.Context, t *candidate, node int, c Claim, sure bool) bool {
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
		if ours || a.err != nil || a.value.State != Abandoned || a.value.Token == c.Token || !sure && a.value.Attempt > c.Attempt {
			return ours
		}
		c.Replaces = a.value.Token
	}
	return false
}
