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

// Claim is part of [lock.Store]. It is one try. If concurrent claims share the nodes and none has
// a majority, the error says that nothing was applied, and the Locker claims again after a random
// pause. A refusal names the holder that a majority of nodes has named, each at its own moment.
// This holder can be a concurrent claim that never had a majority at one moment, and claims again.
func (q *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	switch {
	case ctx.Err() != nil:
		return lock.Entry{}, notMade(ctx)
	case c.Fenced:
		return lock.Entry{}, errFence
	case c.Linger > 0 || c.Replaces != "":
		return lock.Entry{}, errReceipt
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint) // nodes read it after this call has returned
	t := q.enter(key, c.Token)
	defer t.leave()
	select { // two concurrent claims of one token would take back each other's votes
	case t.claiming <- struct{}{}:
		defer func() { <-t.claiming }()
	case <-ctx.Done():
		return lock.Entry{}, notMade(ctx)
	}
	v := &vote{quorum: q, replies: replies{need: q.need}, token: t, claim: c, nodes: t.begin(q.need)}
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
	loose  atomic.Bool // a node may have the claim after the vote, or get it later
	nodes  []int       // the nodes to ask
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
		// The Locker decides whether enough of the lease is left: it knows the earlier
		// sends. If the token is released after this, the release and late answers clean
		// up.
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
		if dead := v.removable(ctx); dead != "" {
			return v.of(dead), nil
		}
		v.why = send.ErrSplit
	}
	return lock.Entry{}, v.failure(ctx, certain)
}

// collect takes answers until a majority agrees. decided is false if no majority does.
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

// landed returns the outcome of the claim. It is called when no call of the claim is in flight.
func (v *vote) landed() send.Landing {
	v.token.leave()
	if v.loose.Load() {
		return send.Unanswered
	}
	return send.Nothing
}

func (v *vote) ours(e *lock.Entry) bool { return e.State == lock.Held && e.Token == v.claim.Token }

// holds reports whether the claim has the node, or may have.
func (v *vote) holds(a *answer[lock.Entry]) bool {
	return a.unknown() || a.err == nil && v.ours(&a.value)
}

// removable returns the token of an orphan of the same Locker that has some of the nodes. The
// Locker removes it if Claim returns it as the entry in the way.
func (v *vote) removable(ctx context.Context) (token string) {
	for i := range v.answers {
		a := &v.answers[i]
		if a.err == nil && a.value.State == lock.Held && send.Dead(ctx, a.value.Token) {
			return a.value.Token
		}
	}
	return ""
}

// decide ends the collecting. Entries that land later are removed if they are not wanted.
func (v *vote) decide(ctx context.Context) {
	v.answers = append(v.answers, v.round.decide(func(a answer[lock.Entry]) {
		if v.holds(&a) && v.token.bar(a.node) {
			v.free(ctx, a.node)
		}
	})...)
	v.silent = v.round.silent(ctx)
}

// takeBack removes the entries of the claim, and reports whether it is certain that none is left
// or can land later. If the claim may be sent again, it waits for the nodes that have said yes:
// they can vote again only after they have confirmed their releases. It does not wait for other
// nodes, which may have the claim too.
func (v *vote) takeBack(ctx context.Context, again bool) (certain bool) {
	v.token.giveUp() // before the decision: later answers check the mark, and clean up
	v.decide(ctx)
	certain = len(v.silent) == 0
	var given []<-chan bool
	for _, a := range v.answers {
		if !v.holds(&a) {
			continue
		}
		if !v.token.bar(a.node) {
			certain = false // the caller's release is in flight
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

// free removes the entry that the claim may have on a node, which is barred.
func (v *vote) free(ctx context.Context, node int) (gone bool) {
	gone = v.quorum.free(ctx, v.token, node)
	if !gone {
		v.loose.Store(true)
	}
	return gone
}

// failure returns the error of a claim without a majority.
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
