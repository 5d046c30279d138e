package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Renew is part of [lock.Store]. If a majority confirms, Renew restores the entry on the nodes
// that have answered no: no other token can have the key meanwhile. Without a majority in this
// same round, it creates nothing.
func (q *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	switch {
	case ctx.Err() != nil:
		return false, notMade(ctx)
	case c.Linger > 0:
		return false, errReceipt
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	t := q.enter(key, c.Token)
	m := ballot{
		call: "renew",
		send: func(ctx context.Context, node int) (bool, error) { return q.given[node].Renew(ctx, key, c) },
		// A renewal is a vote too. A node that may still execute a release of the token has no
		// vote, and gets no entry.
		reliable: t.reliable(),
	}
	m.rest = func(a answer[bool]) {
		if a.err == nil && slices.Contains(m.reliable, a.node) {
			q.reseed(ctx, t, a.node, c)
		}
	}
	return q.vote(ctx, t, &m)
}

// reseed restores an entry on a node that has lost it. It does not change an entry of another
// token.
func (q *Store) reseed(ctx context.Context, t *calls, node int, c lock.Claim) {
	if !t.again(node) {
		return
	}
	e, err := askNode(ctx, q, node, func(ctx context.Context, node int) (lock.Entry, error) {
		defer t.claims[node].Done()
		return q.given[node].Claim(ctx, t.key, c)
	})
	a := answer[lock.Entry]{node, e, err}
	if (a.unknown() || err == nil && e.State == lock.Held && e.Token == c.Token) && t.bar(node) {
		q.free(ctx, t, node)
	}
}

// Settle is part of [lock.Store], for cool-downs only. It asks a node without an answer again.
func (q *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	switch {
	case ctx.Err() != nil:
		return false, notMade(ctx)
	case len(receipt) > 0:
		return false, errReceipt
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	t := q.enter(key, c.Token)
	t.giveUp() // an entry that a late claim leaves on a node does not belong to the cool-down
	m := ballot{
		call: "settle",
		send: func(ctx context.Context, node int) (bool, error) {
			return q.given[node].Settle(ctx, key, c, nil, keep)
		},
	}
	m.rest = func(a answer[bool]) { q.insist(ctx, a, m.send) }
	return q.vote(ctx, t, &m)
}

// Release is part of [lock.Store]. It asks a node without an answer again, and then leaves the
// entry to the end of its lease.
func (q *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	if ctx.Err() != nil {
		return false, notMade(ctx)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	t := q.enter(key, c.Token)
	t.release() // before the first send, see tokens
	m := ballot{
		call:    "release",
		patient: true,
		send: func(ctx context.Context, node int) (bool, error) {
			t.claims[node].Wait()
			return q.given[node].Release(ctx, key, c)
		},
		last: func(node int) { t.unbar(node, 0) },
	}
	m.rest = func(a answer[bool]) { q.insist(ctx, a, m.send) }
	return q.vote(ctx, t, &m)
}

// ballot is a call that nodes answer with yes or no.
type ballot struct {
	call     string
	patient  bool // it waits for the other nodes even after a majority has said no
	send     func(ctx context.Context, node int) (bool, error)
	reliable []int              // the nodes whose yes counts; nil: all
	rest     func(answer[bool]) // handles a node that has not said yes, after a majority has
	last     func(node int)     // called when no call to a node is in flight; may be nil
}

// vote sends m to all nodes. A majority of yes carries the ballot. A majority of no loses it. If it
// is neither carried nor lost, a node without an answer may decide, and the outcome is unknown.
// vote leaves t at the end.
func (q *Store) vote(ctx context.Context, t *calls, m *ballot) (ok bool, err error) {
	r := askNodes(ctx, q, q.all, func() send.Landing { t.leave(); return send.Nothing }, m.send)
	defer r.done()
	var all []answer[bool]
	yes, no := 0, 0
	book := func(a answer[bool]) {
		switch m.judge(&a); {
		case a.err == nil && a.value:
			yes++
		case a.err == nil:
			no++
		}
		all = append(all, a)
	}
	for yes < q.need && (m.patient || no < q.need) {
		a, ok := r.next(ctx)
		if !ok {
			break
		}
		book(a)
	}
	carried := yes >= q.need
	for _, a := range r.decide(func(a answer[bool]) { m.judge(&a); m.finish(a, carried) }) {
		book(a)
	}
	for _, a := range all {
		if carried && (a.err != nil || !a.value) {
			r.also(func() { m.finish(a, true) })
		} else {
			m.finish(a, carried)
		}
	}
	if carried || no >= q.need {
		return carried, nil
	}
	f := q.shortage(m.call)
	f.certain, f.cause = yes == 0, context.Cause(ctx)
	f.why = fmt.Errorf("%d of %d nodes said yes, and %d no; %d have to agree", yes, len(q.given), no, q.need)
	for _, a := range slices.Concat(all, r.silent(ctx)) {
		f.add(a.node, a.err)
		f.certain = f.certain && !a.unknown()
	}
	return false, f
}

func (m *ballot) judge(a *answer[bool]) {
	if a.err == nil && a.value && m.reliable != nil && !slices.Contains(m.reliable, a.node) {
		a.value, a.err = false, errBarred
	}
}

// finish handles the answer of a node after the decision.
func (m *ballot) finish(a answer[bool], carried bool) {
	if carried && (a.err != nil || !a.value) {
		m.rest(a)
	}
	if m.last != nil {
		m.last(a.node)
	}
}

// sendsToNode is the number of sends of a lease's end to a node without an answer. After that the
// entry ends with its lease. Close waits for these sends, so the pauses between them are short.
// They are random, so that callers which failed together do not return together.
const (
	sendsToNode  = 3
	maxNodePause = 200 * time.Millisecond
)

// insist sends to a node without an answer until it answers, at most sendsToNode times.
func (q *Store) insist(ctx context.Context, a answer[bool], call func(context.Context, int) (bool, error)) {
	for n := 1; a.err != nil && n < sendsToNode; n++ {
		timer := time.NewTimer(maxNodePause/2 + rand.N(maxNodePause/2)) //nolint:gosec // spreading retries needs no secrecy
		<-timer.C
		_, a.err = askNode(ctx, q, a.node, call)
	}
}

// free removes the entry that token may have on a node, which is barred, and reports whether the
// node has confirmed the removal.
func (q *Store) free(ctx context.Context, t *calls, node int) (gone bool) {
	doubt := time.Duration(0)
	for n := 0; n < sendsToNode && !gone; n++ {
		_, err := askNode(ctx, q, node, func(ctx context.Context, node int) (bool, error) {
			return q.given[node].Release(ctx, t.key, lock.Claim{Token: t.token})
		})
		gone = err == nil
		if !gone && !errors.Is(err, lock.ErrNotApplied) {
			doubt = lock.Describe(q.given[node]).MaxLag // an unanswered send can land during this time
		}
	}
	t.unbar(node, doubt)
	return gone
}
