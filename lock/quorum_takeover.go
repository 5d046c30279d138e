package lock

import (
	"bytes"
	"context"
	"slices"
)

// takeOver claims an abandoned key: first on one node, and when that is had, on
// the others at once. Of several claims that have seen the same abandoned entry,
// the first one on the first node is thus the only one that goes on. Otherwise
// each might take some nodes, and none could give them back (see conclude).
//
// A node that does not answer, or has something else than another takeover, is
// passed over: the next one is the first then. Claims that do not all see that
// alike can still meet, and then lapse with a part of the nodes each.
func (b *ballot) takeOver(ctx context.Context) {
	b.kind = mute
	for i, node := range b.nodes {
		if ctx.Err() != nil {
			return
		}
		heard := len(b.votes.answers)
		b.poll(ctx, []int{node}, true, b.nodeClaim)
		if len(b.votes.answers) == heard {
			continue
		}
		switch a := b.votes.answers[heard]; {
		case b.votes.ours(&a):
			// Every node is heard: a single one may have the receipt.
			b.poll(ctx, append(b.withdrawFree(), b.nodes[i+1:]...), true, b.joinTakeover)
			b.gather(ctx)
			return
		case b.kind == receipt:
			return
		case a.err == nil && b.rival(a.value):
			b.ruling = ruling{kind: taken, entry: a.value, node: node}
			if e, err := b.Get(ctx, b.key); err == nil && e.Token == a.value.Token {
				b.entry = e // of who was abandoned, this node is merely the last to know
			}
			return
		}
	}
}

// withdrawFree takes back the answers of nodes which had nothing to replace, and
// returns these nodes.
func (b *ballot) withdrawFree() (nodes []int) {
	b.votes.answers = slices.DeleteFunc(b.votes.answers, func(a answer[Entry]) bool {
		free := a.err == nil && a.value.State == Free
		if free {
			nodes = append(nodes, a.node)
		}
		return free
	})
	return nodes
}

// joinTakeover claims on one more node of a takeover. One that has forgotten the
// abandoned entry is free.
func (n *election) joinTakeover(ctx context.Context, node int) (Entry, error) {
	e, err := n.nodeClaim(ctx, node)
	if err != nil || e.State != Free {
		return e, err
	}
	return n.claimOn(ctx, node, "")
}

// rival reports whether e is of a takeover that has seen what this one has, or
// more, and is at it.
func (n *election) rival(e Entry) bool {
	return e.State == Held && e.Token != n.claim.Replaces && e.Attempt >= n.claim.Attempt
}

// gather takes over what earlier takeovers of the same work, which did not get a
// majority, have left on some nodes each. While no token has a majority, none
// else can have been granted since; and their attempts are below this one's, so
// that none is forgotten.
func (b *ballot) gather(ctx context.Context) {
	if b.kind == won || b.kind == receipt || b.sure {
		return
	}
	seen := make(map[int]string)
	nodes := []int(nil)
	for _, a := range b.votes.answers {
		e := a.value
		if a.err == nil && e.State == Abandoned && e.Token != b.claim.Token && e.Attempt < b.claim.Attempt &&
			bytes.Equal(e.Fingerprint, b.claim.Fingerprint) {
			seen[a.node] = e.Token
			nodes = append(nodes, a.node)
		}
	}
	if len(nodes) == 0 {
		return
	}
	b.votes.answers = slices.DeleteFunc(b.votes.answers, func(a answer[Entry]) bool { return seen[a.node] != "" })
	b.poll(ctx, nodes, true, func(ctx context.Context, node int) (Entry, error) {
		return b.claimOn(ctx, node, seen[node])
	})
}
