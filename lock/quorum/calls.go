package quorum

import (
	"sync"
	"time"
)

// tokens holds the calls that this process has in flight on the nodes. A call on the quorum
// returns before all of its calls on nodes have returned, and late calls must not undo the next
// call for the same token:
//
//   - A claim that lands on a node after the token's release, or after the claim missed its
//     majority, would hold the node for no caller. So a late answer to a claim checks whether
//     the token is still wanted, and removes the entry if it is not. The caller's own release
//     goes to a node after the claims on it have ended, and needs no such check.
//   - A release that lands on a node after a later claim of the same token would remove a vote
//     that was counted, and make a second holder possible. So a node with a release of a token in
//     flight is barred: the node is not asked for its vote, and its confirmations do not count.
//
// Both are decided under one lock. If the later claim comes first, the earlier one finds the
// token wanted. If the removal comes first, the later claim finds the node barred.
type tokens struct {
	mu  sync.Mutex
	all map[tokenID]*calls
}

type tokenID struct{ key, token string }

// calls are the calls in flight for one token on one key. The lock of tokens guards the fields
// below it.
type calls struct {
	tokenID
	tokens   *tokens
	claiming chan struct{} // holds a value during a claim

	claims []sync.WaitGroup // in flight, by node; none begins while the node is barred

	uses     int   // calls of enter and stay without a call of leave yet
	unwanted bool  // its claim missed the majority, or its caller has ended it
	released bool  // its caller has released it
	barred   []int // releases that may be in flight, by node
}

// enter returns the calls of token. They are kept until leave was called as often as enter.
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

// stay counts as one more call of enter, for a caller that has entered already.
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

// begin marks the token as wanted, and returns the nodes whose votes count. If there are at least
// need of them, it begins a claim on each.
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

// reliable returns the nodes whose votes for the token count.
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

// giveUp marks the token as unwanted. It must be called before a round is decided: later answers
// check the mark.
func (c *calls) giveUp() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.unwanted = true
}

// release marks the token as released by its caller, and bars all nodes.
func (c *calls) release() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	c.unwanted, c.released = true, true
	for node := range c.barred {
		c.barred[node]++
	}
}

// bar bars a node if the token is no longer wanted, and reports whether it did. The caller then
// removes the entry on it. A release by the token's caller removes it in any case, since it goes
// to each node after the claims on it.
func (c *calls) bar(node int) bool {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	if !c.unwanted || c.released {
		return false
	}
	c.barred[node]++
	return true
}

// unbar takes back one bar, after the time in which a release can still land. It does not wait
// for a token that its caller has released: the Locker claims with another token then, and a node
// without answers would keep every token of this time in memory.
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
