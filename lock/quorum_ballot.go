package lock

import (
	"context"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// ballot is one try of an election.
type ballot struct {
	*election
	ruling
	votes  votes
	nodes  []int           // that may be asked
	silent []answer[Entry] // of nodes that are asked, but did not answer in time
	rounds []*round[Entry]
	began  time.Time

	found  *find // the receipt that it met; written before the decision
	halted bool  // no more of what it took is given back; used in found's turn
}

// poll asks nodes, and comes to a ruling. patient says to hear all of them even
// if a majority is ours.
func (b *ballot) poll(ctx context.Context, nodes []int, patient bool, call func(context.Context, int) (Entry, error)) {
	b.token.again()
	b.flight.Depart()
	r := askNodes(ctx, b.quorum, nodes, func() {
		if b.loose.Load() {
			b.flight.Arrive(send.Lost)
		} else {
			b.flight.Arrive(send.Nothing)
		}
		b.token.leave()
	}, call)
	b.rounds = append(b.rounds, r)
	b.votes.need, b.votes.token, b.votes.patient, b.votes.dead = b.need, b.claim.Token, patient, b.flight.Dead
	if b.claim.Replaces != "" {
		b.votes.attempt = b.claim.Attempt
	}
	for b.ruling = b.votes.rule(false); b.kind == pending; b.ruling = b.votes.rule(false) {
		a, ok := r.next(ctx)
		if !ok {
			b.silent = append(b.silent, r.silent(ctx)...)
			b.ruling = b.votes.rule(true)
			break
		}
		b.votes.answers = append(b.votes.answers, a)
	}
	if b.kind != won && b.kind != receipt && len(b.silent) > 0 && ctx.Err() != nil {
		b.ruling = ruling{kind: mute} // what was heard so far refuses nobody
	}
}

// decide ends the collecting.
func (b *ballot) decide(ctx context.Context) {
	for _, r := range b.rounds {
		b.votes.answers = append(b.votes.answers, r.decide(func(a answer[Entry]) { b.late(ctx, a) })...)
	}
}

// late deals with the answer of a node that came after the decision.
func (b *ballot) late(ctx context.Context, a answer[Entry]) {
	switch {
	case b.found != nil:
		b.correct(ctx, a)
	case !b.holds(a):
	case b.token.bar(a.node):
		b.free(ctx, a.node)
	default:
		b.overtake(ctx, b.token, a.node)
	}
}

func (b *ballot) done() {
	for _, r := range b.rounds {
		r.done()
	}
}

// conclude ends a ballot that is not won, and says why it is not.
func (b *ballot) conclude(ctx context.Context) (Entry, error) {
	defer b.done()
	var certain bool
	switch {
	case b.kind == receipt && b.recall(ctx):
		return b.entry, nil
	case b.kind == receipt:
		b.why = "a receipt is on too few nodes, and could not be brought to others"
	case b.claim.Replaces != "" && !b.sure && b.kind != won:
		// What it has taken over stands for work of unknown outcome. It is left to
		// lapse, for the next one to take over: to remove it would be to forget that.
		b.decide(ctx)
		certain = len(b.silent) == 0 && !slices.ContainsFunc(b.votes.answers, b.holds)
	default:
		certain = b.takeBack(ctx)
	}
	b.doubt = b.doubt || !certain
	if b.kind == taken || b.kind == split {
		return b.entry, nil
	}
	return Entry{}, b.failure(ctx)
}

// takeBack removes what the claim has taken, and reports whether it is certain
// that nothing is left or can come. After a claim that may be sent again it
// waits for the nodes that have said yes: only when they have confirmed their
// releases can they be asked for their votes again. Others may have the claim
// too, but are not ones to wait for.
func (b *ballot) takeBack(ctx context.Context) (certain bool) {
	b.token.lose() // before the decision: what comes after that looks there, and sees to itself
	b.decide(ctx)
	certain = len(b.silent) == 0
	var given []<-chan bool
	for _, a := range b.votes.answers {
		if !b.holds(a) || !b.token.bar(a.node) {
			continue
		}
		gone := make(chan bool, 1)
		b.rounds[0].also(func() { gone <- b.free(ctx, a.node) })
		if a.err == nil && b.kind != taken {
			given = append(given, gone)
		} else {
			certain = false
		}
	}
	for _, gone := range given {
		select {
		case ok := <-gone:
			certain = certain && ok
		case <-ctx.Done():
			return false
		}
	}
	return certain
}

// failure is the error of a claim that no majority has answered.
func (b *ballot) failure(ctx context.Context) error {
	f := b.shortage("claim")
	f.certain, f.why = !b.doubt, b.why
	switch {
	case b.kind == won:
		f.why = "released while it was on its way"
	case ctx.Err() != nil:
		f.cause = context.Cause(ctx)
	}
	for _, a := range slices.Concat(b.votes.answers, b.silent) {
		f.add(a.node, a.err)
	}
	f.addBarred(b.nodes)
	return f
}
