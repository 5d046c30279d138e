package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Renew is part of [Store]. A majority that confirms brings the entry back to the
// nodes that have answered no: nobody else can have the key while it does.
// Without one in this same round, nothing is created.
func (q *quorum) Renew(ctx context.Context, key string, c Claim) (ok bool, err error) {
	if err := q.fit(ctx); err != nil {
		return false, err
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	t := q.enter(key, c.Token)
	// A renewal is a vote too. From a node that may take it back, only a no counts,
	// and nothing is brought back there.
	may := t.mayVote()
	m := motion{
		call: "renew",
		send: func(ctx context.Context, node int) (bool, error) {
			ok, err := q.nodes[node].Renew(ctx, key, c)
			if ok && !may[node] {
				return false, errBarred
			}
			return ok, err
		},
		rest: func(a answer[bool]) {
			if a.err == nil && may[a.node] && q.seize(ctx, t, a.node, c, true) {
				q.overtake(ctx, t, a.node)
			}
		},
	}
	return q.carry(ctx, t, &m)
}

// Settle is part of [Store]. A majority that has the receipt brings it to the
// others too. Without one, it stays with those that have it.
func (q *quorum) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	if err := q.fit(ctx); err != nil {
		return false, err
	}
	receipt = bytes.Clone(receipt)
	m := motion{
		call: "settle",
		send: func(ctx context.Context, node int) (bool, error) {
			return q.nodes[node].Settle(ctx, key, token, receipt, keep)
		},
	}
	t := q.enter(key, token)
	f := newFind(Entry{Token: token}, 0)
	m.won = func() {
		f.node, f.sure = m.witness, true // what else a receipt bears, only a node that has it can tell
		t.settle(f)
	}
	m.rest = func(a answer[bool]) {
		if a.err != nil && q.insist(ctx, a.node, m.send) {
			return
		}
		f.turn <- struct{}{}
		defer func() { <-f.turn }()
		q.restore(ctx, key, a.node, f)
	}
	return q.carry(ctx, t, &m)
}

// Release is part of [Store]. A node that does not answer is told again, and
// then left to the end of the lease.
func (q *quorum) Release(ctx context.Context, key, token string) (ok bool, err error) {
	if err := q.fit(ctx); err != nil {
		return false, err
	}
	t := q.enter(key, token)
	t.release() // before the first send, see candidates
	m := motion{
		call:    "release",
		patient: true,
		send:    func(ctx context.Context, node int) (bool, error) { return q.nodes[node].Release(ctx, key, token) },
	}
	m.rest = func(a answer[bool]) {
		if a.err != nil {
			q.insist(ctx, a.node, m.send)
		}
	}
	m.last = func(node int) { t.unbar(node, 0) }
	return q.carry(ctx, t, &m)
}

// motion is a call that nodes answer with yes or no.
type motion struct {
	call    string
	patient bool // a majority against it is no reason not to hear the others
	send    func(ctx context.Context, node int) (bool, error)
	won     func()             // called when a majority has said yes; may be nil
	rest    func(answer[bool]) // deals with a node that has not said yes, after that
	last    func(node int)     // called when nothing is on its way to a node any more; may be nil
	witness int                // a node that has said yes; written before won is called
}

// carry sends m to all nodes. It is carried with a majority of yes, and lost when
// the others cannot be a majority any more. In between, a node that has not
// answered can be the one that matters, and the outcome is not known. The
// candidate is left in the end.
func (q *quorum) carry(ctx context.Context, t *candidate, m *motion) (ok bool, err error) {
	r := askNodes(ctx, q, q.all, t.leave, m.send)
	defer r.done()
	var others []answer[bool]
	yes, no := 0, 0
	book := func(a answer[bool]) {
		switch {
		case a.err == nil && a.value:
			if yes++; yes == 1 {
				m.witness = a.node
			}
			m.over(a.node)
			return
		case a.err == nil:
			no++
		}
		others = append(others, a)
	}
	for yes < q.need && (m.patient || no < q.need) {
		a, ok := r.next(ctx)
		if !ok {
			break
		}
		book(a)
	}
	carried := yes >= q.need
	if carried && m.won != nil {
		m.won()
	}
	last := r.decide(func(a answer[bool]) { m.finish(a, carried) })
	for _, a := range last {
		book(a)
	}
	for _, a := range others {
		if carried {
			r.also(func() { m.finish(a, true) })
		} else {
			m.finish(a, false)
		}
	}
	if carried || no >= q.need {
		return carried, nil
	}
	f := q.shortage(m.call)
	f.certain, f.cause = yes == 0, context.Cause(ctx)
	f.why = fmt.Sprintf("%d of %d nodes said yes, and %d no; %d have to agree", yes, len(q.nodes), no, q.need)
	for _, a := range slices.Concat(others, r.silent(ctx)) {
		f.add(a.node, a.err)
		f.certain = f.certain && !a.unknown()
	}
	return false, f
}

// finish deals with the answer of a node after the decision.
func (m *motion) finish(a answer[bool], carried bool) {
	if carried && (a.err != nil || !a.value) {
		m.rest(a)
	}
	m.over(a.node)
}

func (m *motion) over(node int) {
	if m.last != nil {
		m.last(node)
	}
}

// sendsToNode is how often a node that does not answer is told of the end of a
// lease. After that it is left to the lease itself. A Locker that closes waits for
// it, so the pauses in between are short.
const (
	sendsToNode  = 3
	maxNodePause = 200 * time.Millisecond
)

// insist sends to a node that has not answered, until it does or enough is done,
// and reports whether it said yes.
func (q *quorum) insist(ctx context.Context, node int, send func(context.Context, int) (bool, error)) (yes bool) {
	for range sendsToNode - 1 {
		timer := time.NewTimer(min(q.retryDelay(), maxNodePause))
		<-timer.C
		within, cancel := q.within(ctx)
		yes, err := send(within, node)
		cancel()
		if err == nil {
			return yes
		}
	}
	return false
}

// free removes what token may have on a node, which has been barred for that,
// and reports whether the node has confirmed it.
func (q *quorum) free(ctx context.Context, t *candidate, node int) (gone bool) {
	doubt := time.Duration(0)
	for range sendsToNode {
		within, cancel := q.within(ctx)
		_, err := q.nodes[node].Release(within, t.key, t.token)
		cancel()
		if err == nil {
			gone = true
			break
		}
		if !errors.Is(err, ErrNotApplied) {
			doubt = q.lags[node] // an unanswered send can land for that long
		}
	}
	t.unbar(node, doubt)
	return gone
}
