package quorum

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Claim is part of [lock.Store]. It is one try: where several claims have shared the nodes
// among them, so that none has a majority, the error says that nothing was applied,
// and the Locker claims again after a random pause. A refusal names the holder that a
// majority of nodes named, each at an instant of its own: among claims at once, that can
// be one which has been split, and claims again.
func (q *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	switch {
	case ctx.Err() != nil:
		return lock.Entry{}, notMade(ctx)
	case c.Fenced:
		return lock.Entry{}, errFence
	case c.Linger > 0 || c.Replaces != "":
		return lock.Entry{}, errReceipt
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint) // nodes read it for longer than this call lasts
	t := q.enter(key, c.Token)
	defer t.leave()
	select { // two at once for one token would take back each other's votes
	case t.claiming <- struct{}{}:
		defer func() { <-t.claiming }()
	case <-ctx.Done():
		return lock.Entry{}, notMade(ctx)
	}
	v := &vote{quorum: q, replies: replies{need: q.need}, token: t, claim: c, flight: send.InFlight(ctx), nodes: t.begin(q.need)}
	if len(v.nodes) < q.need {
		return lock.Entry{}, v.failure(ctx, true)
	}
	return v.run(ctx)
}

// vote is one claim on the quorum.
type vote struct {
	replies

	quorum *Store
	token  *calls
	claim  lock.Claim
	flight *send.Flight
	loose  atomic.Bool // a node may have the claim after it was ended, or get it yet
	nodes  []int       // that are asked
	silent []answer[lock.Entry]
	round  *round[lock.Entry]
	why    error
}

var errReleased = errors.New("released while it was in flight")

func (v *vote) run(ctx context.Context) (lock.Entry, error) {
	v.token.stay()
	v.round = askNodes(ctx, v.quorum, v.nodes, v.landed, v.claimOn)
	defer v.round.done()
	e, decided := v.collect(ctx)
	granted := decided && v.ours(&e)
	switch {
	case granted && v.token.wanted():
		// Whether enough of the lease is left is for the Locker to say: it knows of
		// the sends before this one. If the token is released from here on, the
		// release cleans up, and so do answers that come late.
		v.decide(ctx)
		return e, nil
	case granted:
		v.why = errReleased
	case decided:
		v.takeBack(ctx, false)
		return e, nil
	}
	certain := v.takeBack(ctx, true)
	if !granted && v.answered() && (len(v.silent) == 0 || ctx.Err() == nil) {
		if dead := v.removable(); dead != "" {
			return v.of(dead), nil
		}
		v.why = send.ErrSplit
	}
	return lock.Entry{}, v.failure(ctx, certain)
}

// collect takes answers until a majority agrees. decided is false if none does.
func (v *vote) collect(ctx context.Context) (e lock.Entry, decided bool) {
	for {
		a, ok := v.round.next(ctx)
		if !ok {
			return lock.Entry{}, false
		}
		v.answers = append(v.answers, a)
		if e, ok := v.majority(); ok {
			return e, true
		}
	}
}

// claimOn claims on one node.
func (v *vote) claimOn(ctx context.Context, node int) (lock.Entry, error) {
	defer v.token.claims[node].Done()
	e, err := v.quorum.given[node].Claim(ctx, v.token.key, v.claim)
	if err != nil && !errors.Is(err, lock.ErrNotApplied) {
		v.loose.Store(true)
	}
	return e, err
}

// landed says what the claim has left when nothing of it is still in flight.
func (v *vote) landed() send.Outcome {
	v.token.leave()
	if v.loose.Load() {
		return send.Lost
	}
	return send.Nothing
}

func (v *vote) ours(e *lock.Entry) bool { return e.State == lock.Held && e.Token == v.claim.Token }

// holds reports whether the claim has the node, or may have.
func (v *vote) holds(a *answer[lock.Entry]) bool {
	return a.unknown() || a.err == nil && v.ours(&a.value)
}

// removable returns the token of an own dead claim that has some of the nodes: its
// Locker removes it, if it is returned as what is in the way.
func (v *vote) removable() (token string) {
	for i := range v.answers {
		a := &v.answers[i]
		if a.err == nil && a.value.State == lock.Held && v.flight.Dead(a.value.Token) {
			return a.value.Token
		}
	}
	return ""
}

// decide ends the collecting. What comes later is removed if it is not wanted.
func (v *vote) decide(ctx context.Context) {
	v.answers = append(v.answers, v.round.decide(func(a answer[lock.Entry]) {
		if v.holds(&a) && v.token.bar(a.node) {
			v.free(ctx, a.node)
		}
	})...)
	v.silent = v.round.silent(ctx)
}

// takeBack removes what the claim has taken, and reports whether it is certain
// that nothing is left or can come. A claim that may be sent again waits for the
// nodes that have said yes: only when they have confirmed their releases can they
// be asked for their votes again. Others may have the claim too, and are not
// waited for.
func (v *vote) takeBack(ctx context.Context, again bool) (certain bool) {
	v.token.giveUp() // before the decision: what comes after that looks there, and sees to itself
	v.decide(ctx)
	certain = len(v.silent) == 0
	var given []<-chan bool
	for _, a := range v.answers {
		if !v.holds(&a) {
			continue
		}
		if !v.token.bar(a.node) {
			certain = false // its caller's release is on its way
			continue
		}
		gone := make(chan bool, 1)
		v.round.also(func() { gone <- v.free(ctx, a.node) })
		if again && a.err == nil {
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

// free removes what the claim may have on a node, which has been barred.
func (v *vote) free(ctx context.Context, node int) (gone bool) {
	gone = v.quorum.free(ctx, v.token, node)
	if !gone {
		v.loose.Store(true)
	}
	return gone
}

// failure is the error of a claim that has no majority.
func (v *vote) failure(ctx context.Context, certain bool) error {
	f := v.quorum.shortage("claim")
	f.certain, f.why = certain, v.why
	if ctx.Err() != nil {
		f.cause = context.Cause(ctx)
	}
	for _, a := range slices.Concat(v.answers, v.silent) {
		f.add(a.node, a.err)
	}
	for _, node := range v.quorum.all {
		if !slices.Contains(v.nodes, node) {
			f.add(node, errBarred)
		}
	}
	return f
}
