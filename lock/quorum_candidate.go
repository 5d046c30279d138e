package lock

import (
	"context"
	"sync"
	"time"
)

// candidates has what this process has under way on the nodes. A call on the
// quorum returns before all of its calls on nodes have, and the next call for the
// same token must not be undone by what is left of the one before:
//
//   - A claim that lands on a node after the token's release, or after the claim
//     was found to have no majority, would hold the node for nobody. So whoever
//     is behind such a call asks, when it has returned, whether the token is
//     still wanted, and removes the entry if not.
//   - A release that lands on a node after a later claim of the same token, as
//     after a claim that was taken back and is sent again, would take away a vote
//     that has been counted, and make a second holder possible. So a node with a
//     release of a token on its way is barred: it is not asked for its vote, and
//     what it confirms counts for nothing.
//
// Both questions are decided under one lock: either the later claim comes first,
// and then the one behind finds the token wanted; or the removal comes first,
// and then the later claim finds the node barred.
type candidates struct {
	mu  sync.Mutex
	now map[candidacy]*candidate
}

type candidacy struct{ key, token string }

// candidate is what is under way for one token on one key. Its fields are under
// the lock of all.
type candidate struct {
	candidacy
	all  *candidates
	uses int
	vote *election // the claim that is being decided

	lost     bool  // the claim got no majority, and is taken back
	released bool  // by the caller
	receipt  *find // that a majority has
	barred   []int // releases that are on their way, or may still be, by node
	unbarred chan struct{}
}

// enter returns the candidate of token, for as long as leave has not been called
// as often.
func (q *quorum) enter(key, token string) *candidate {
	all := &q.candidates
	all.mu.Lock()
	defer all.mu.Unlock()
	id := candidacy{key, token}
	c := all.now[id]
	if c == nil {
		c = &candidate{candidacy: id, all: all, barred: make([]int, len(q.nodes))}
		all.now[id] = c
	}
	c.uses++
	return c
}

func (c *candidate) leave() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.uses--; c.uses == 0 {
		delete(c.all.now, c.candidacy)
	}
}

// again is enter by who has entered already.
func (c *candidate) again() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.uses++
}

// elect makes vote the claim that is being decided, or returns the one that is.
// Two for one token would take back each other's votes.
func (c *candidate) elect(vote *election) *election {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.vote == nil {
		c.vote = vote
		c.released = false
	} else {
		c.vote.shared = true
	}
	return c.vote
}

// elected ends that, and reports whether the outcome is shared.
func (c *candidate) elected() (shared bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	shared = c.vote.shared
	c.vote = nil
	return shared
}

// stand returns the nodes that may be asked for their votes. If they are too few
// for a majority it waits a little, since most releases that are on their way are
// just about to be answered. ok is false if the token was released meanwhile.
func (c *candidate) stand(ctx context.Context, q *quorum) (nodes []int, ok bool) {
	timer := time.NewTimer(q.timeout * 3 / 2)
	defer timer.Stop()
	for {
		nodes, changed, ok := c.open()
		if !ok || len(nodes) >= q.need {
			return nodes, ok
		}
		select {
		case <-changed:
		case <-timer.C:
			return nodes, true
		case <-ctx.Done():
			return nodes, true
		}
	}
}

func (c *candidate) open() (nodes []int, changed <-chan struct{}, ok bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.released {
		return nil, nil, false
	}
	c.lost = false
	for node, n := range c.barred {
		if n == 0 {
			nodes = append(nodes, node)
		}
	}
	if c.unbarred == nil {
		c.unbarred = make(chan struct{})
	}
	return nodes, c.unbarred, true
}

// mayVote returns whether the nodes' word for the token can be relied on.
func (c *candidate) mayVote() []bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	may := make([]bool, len(c.barred))
	for node, n := range c.barred {
		may[node] = n == 0
	}
	return may
}

// wanted reports whether the token has neither been released nor taken back.
func (c *candidate) wanted() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return !c.lost && !c.released
}

func (c *candidate) givenUp() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.released
}

// lose says that the claim is taken back. It must be called before the round is
// decided: an answer that comes after that looks here.
func (c *candidate) lose() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.lost = true
}

// settle says that a majority has the receipt. It must be called before the
// nodes that have not are seen to: a claim that lands on one of them either has
// landed before that, or looks here when it has.
func (c *candidate) settle(f *find) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.receipt = f
}

func (c *candidate) settledBy() *find {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.receipt
}

// release says that the caller gives up the token, and bars all nodes.
func (c *candidate) release() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.released = true
	for node := range c.barred {
		c.barred[node]++
	}
}

// bar bars a node if the token is not wanted any more, and reports whether it
// did: the entry on it is then to be removed.
func (c *candidate) bar(node int) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if !c.lost && !c.released {
		return false
	}
	c.barred[node]++
	return true
}

// unbar takes back one bar, after a time in which what was sent can still land.
// For a token that its caller has released it is not waited for: a Locker claims
// with another one then, and a node that is deaf for long would have every token
// of that time remembered.
func (c *candidate) unbar(node int, after time.Duration) {
	if after > 0 && !c.givenUp() {
		c.again()
		time.AfterFunc(after, func() {
			c.unbar(node, 0)
			c.leave()
		})
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.barred[node]--; c.barred[node] == 0 && c.unbarred != nil {
		close(c.unbarred)
		c.unbarred = nil
	}
}
