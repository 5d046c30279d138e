package lock

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// Claim is part of [Store].
func (q *quorum) Claim(ctx context.Context, key string, c Claim) (Entry, error) {
	if err := q.fit(ctx); err != nil {
		return Entry{}, err
	}
	if c.Fenced {
		return Entry{}, errQuorumFence
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint) // nodes read it for longer than this call lasts
	t := q.enter(key, c.Token)
	defer t.leave()
	mine := &election{quorum: q, token: t, flight: send.InFlight(ctx), key: key, claim: c, done: make(chan struct{})}
	if other := t.elect(mine); other != mine {
		return other.share(ctx)
	}
	e, err := mine.run(ctx)
	if t.elected() {
		mine.outcome = outcome{copied(e), err}
	}
	close(mine.done)
	return e, err
}

// election is one claim on the quorum.
type election struct {
	*quorum
	token  *candidate
	flight *send.Flight
	loose  atomic.Bool // a node may have the claim after it was ended, or get it yet
	key    string
	claim  Claim
	doubt  bool // whether something of the tries so far may be left, or may come

	done    chan struct{} // closed when the outcome is there
	outcome outcome       // if somebody shares it
	shared  bool          // under the lock of the candidates
}

type outcome struct {
	entry Entry
	err   error
}

// share waits for an election that an earlier call has begun for the same token.
func (n *election) share(ctx context.Context) (Entry, error) {
	select {
	case <-n.done:
		return copied(n.outcome.entry), n.outcome.err
	case <-ctx.Done():
		return Entry{}, context.Cause(ctx)
	}
}

// copied returns e with slices of its own.
func copied(e Entry) Entry {
	e.Fingerprint, e.Receipt = bytes.Clone(e.Fingerprint), bytes.Clone(e.Receipt)
	return e
}

// run claims until there is a decision.
func (n *election) run(ctx context.Context) (Entry, error) {
	for try := 1; ; try++ {
		nodes, ok := n.token.stand(ctx, n.quorum)
		b := &ballot{election: n, nodes: nodes, began: time.Now()}
		switch {
		case !ok:
			return Entry{}, errReleasedMeanwhile
		case len(nodes) < n.need:
			return Entry{}, b.failure(ctx)
		case n.claim.Replaces == "":
			b.poll(ctx, nodes, false, n.nodeClaim)
		default:
			b.takeOver(ctx)
		}
		if b.kind == won && n.token.wanted() {
			// Whether enough of the lease is left is for the Locker to say: it knows of
			// the sends before this one. If the token is released from here on, the
			// release cleans up, and so do those that come late.
			b.decide(ctx)
			b.done()
			return b.entry, nil
		}
		entry, err := b.conclude(ctx)
		if b.kind != split || n.flight.Dead(entry.Token) || try == n.tries || !n.wait(ctx) {
			return entry, err
		}
	}
}

var errReleasedMeanwhile = errors.New("lock: quorum: the claim was released while it was on its way")

// wait pauses before the next try, unless the caller's time is over by then.
// Claims that have met would meet again if it were not for chance.
func (n *election) wait(ctx context.Context) bool {
	d := n.retryDelay()
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d+n.timeout {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// nodeClaim claims on one node.
func (n *election) nodeClaim(ctx context.Context, node int) (Entry, error) {
	return n.claimOn(ctx, node, n.claim.Replaces)
}

func (n *election) claimOn(ctx context.Context, node int, replaces string) (Entry, error) {
	c := n.claim
	c.Replaces = replaces
	e, err := n.nodes[node].Claim(ctx, n.key, c)
	if err != nil && !errors.Is(err, ErrNotApplied) {
		n.loose.Store(true)
	}
	return e, err
}

// free removes what the claim may have on a node, which has been barred.
func (n *election) free(ctx context.Context, node int) (gone bool) {
	gone = n.quorum.free(ctx, n.token, node)
	if !gone {
		n.loose.Store(true)
	}
	return gone
}

// holds reports whether the claim has the node, or may have.
func (n *election) holds(a answer[Entry]) bool {
	return a.unknown() || a.err == nil && a.value.State == Held && a.value.Token == n.claim.Token
}
