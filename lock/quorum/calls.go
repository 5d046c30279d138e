package quorum

import (
	"sync"
	"time"
)

// tokens has what this process has in flight on the nodes. A call on the quorum
// returns before all of its calls on nodes have, and the next call for the same
// token must not be undone by what is left of the one before:
//
//   - A claim that lands on a node after the token's release, or after the claim
//     was found to have no majority, would hold the node for no caller. So every
//     answer to a claim that comes late asks whether the token is still wanted, and
//     the entry is removed if not. The caller's own release goes to a node when the
//     claims on it have ended, and needs no such help.
//   - A release that lands on a node after a later claim of the same token would
//     take away a vote that has been counted, and make a second holder possible. So
//     a node with a release of a token in flight is barred: it is not asked for its
//     vote, and what it confirms does not count.
//
// Both questions are decided under one lock: either the later claim comes first,
// and then the earlier one finds the token wanted; or the removal comes first, and
// then the later claim finds the node barred.
type tokens struct {
	mu  sync.Mutex
	all map[tokenID]*calls
}

type tokenID struct{ key, token string }

// calls is what is in flight for one token on one key. Its fields below tokens are
// under the lock of all.
type calls struct {
	tokenID
	tokens   *tokens
	claiming chan struct{} // has room for the claim whose turn it is

	claims []sync.WaitGroup // in flight, by node; begun while the node is not barred

	uses     int
	unwanted bool  // its claim got no majority, or it was ended by its caller
	released bool  // by its caller
	barred   []int // releases that are in flight, or may be, by node
}

// enter returns the calls of token, for as long as leave has not been called as
// often.
func (q *Store) enter(key, token string) *calls {
	all := &q.tokens
	all.mu.Lock()
	defer all.mu.Unlock()
	id := tokenID{key, token}
	c := all.all[id]
	if c == nil {
		c = &calls{tokenID: id, tokens: all, claiming: make(chan struct{}, 1), claims: make([]sync.WaitGroup, len(q.given)), barred: make([]int, len(q.given))}
		all.all[id] = c
	}
	c.uses++
	return c
}

// stay is enter for a caller that has entered already.
func (c *calls) stay() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.uses++
}

func (c *calls) leave() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	if c.uses--; c.uses == 0 {
		delete(c.tokens.all, c.tokenID)
	}
}

// begin makes the token wanted, and returns the nodes whose word for it counts. If there
// are as many as need, a claim on each is begun.
func (c *calls) begin(need int) (nodes []int) {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.unwanted, c.released = false, false
	if nodes = c.unbarred(); len(nodes) >= need {
		for _, node := range nodes {
			c.claims[node].Add(1)
		}
	}
	return nodes
}

// again begins one more claim on a node, unless the token is not wanted or the node barred.
func (c *calls) again(node int) (begun bool) {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	if begun = !c.unwanted && c.barred[node] == 0; begun {
		c.claims[node].Add(1)
	}
	return begun
}

// reliable returns the nodes whose word for the token counts.
func (c *calls) reliable() (nodes []int) {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	return c.unbarred()
}

// unbarred is reliable for a caller that has locked tokens. It is never nil.
func (c *calls) unbarred() []int {
	nodes := make([]int, 0, len(c.barred))
	for node, releases := range c.barred {
		if releases == 0 {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (c *calls) wanted() bool {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	return !c.unwanted
}

// giveUp says that nothing more is to be had for the token. It must be called
// before a round is decided: an answer that comes after that looks here.
func (c *calls) giveUp() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.unwanted = true
}

// release says that the caller gives up the token, and bars all nodes.
func (c *calls) release() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.unwanted, c.released = true, true
	for node := range c.barred {
		c.barred[node]++
	}
}

// bar bars a node if the token is no longer wanted, and reports whether it
// did: the entry on it is then to be removed. A release by its caller removes it anyway,
// since that goes to each node after the claims on it.
func (c *calls) bar(node int) bool {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	if !c.unwanted || c.released {
		return false
	}
	c.barred[node]++
	return true
}

// unbar takes back one bar, after a time in which a release can still land. For a
// token that its caller has released it does not wait: a Locker claims with another
// one then, and a node that is silent for long would have every token of that time
// remembered.
func (c *calls) unbar(node int, after time.Duration) {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	if after == 0 || c.released {
		c.barred[node]--
		return
	}
	c.uses++
	time.AfterFunc(after, func() {
		c.unbar(node, 0)
		c.leave()
	})
}
