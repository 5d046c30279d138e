package latchtest

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/mistake"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// loss is one way to lose packets.
type loss struct {
	name, words string
	fault       fault
	claims      int // claims of each key that meet it
	ends        int // releases and settles of each key that meet it
}

// every is more calls than a request makes.
const every = math.MaxInt

func losses() []loss {
	return []loss{
		{"nothing_lost", "nothing was lost", loseReply, 0, 0},
		// The first claim of every key, because guards may be nested.
		{"claim_reply_lost", "the reply of the claim was lost", loseReply, 1, 0},
		{"all_claim_replies_lost", "the replies of all claims were lost", loseReply, every, 0},
		{"release_replies_lost", "the replies of all releases and settles were lost", loseReply, 0, every},
		{"claim_and_release_replies_lost", "the replies of the claim and of all releases and settles were lost", loseReply, 1, every},
		{"releases_lost", "all releases and settles were lost", loseRequest, 0, every},
	}
}

// calm reports whether nothing is lost at all.
func (l loss) calm() bool { return l.claims+l.ends == 0 }

// applyTo returns s with the loss, until the plan is stopped.
func (l loss) applyTo(s *memstore.Store) (lock.Store, *plan) {
	p := &plan{loss: l, calls: make(map[call]int)}
	d := &disturbed{Store: s, hits: p.hits, fault: l.fault}
	return witnessed{inspected{d, s}, p}, p
}

var _ mistake.Witness = (*plan)(nil)

// witnessed is a store with a loss. Guards over it report their mistakes to the plan.
type witnessed struct {
	inspected
	*plan
}

// plan decides which calls are lost.
type plan struct {
	loss    loss
	mu      sync.Mutex
	stopped bool
	calls   map[call]int

	locks   []string // claimed, and not ended
	outside string   // a lock under which a record was claimed; "": none
	mistake string   // the report of a guard that protects nothing; "": none
}

// Mistake implements [mistake.Witness].
func (p *plan) Mistake(guard, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mistake = fmt.Sprintf("the guard %q reports: %s", guard, text)
}

// mistaken returns the report of a guard that protects nothing, "" if there is none.
func (p *plan) mistaken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mistake
}

type call struct {
	op  Op
	key string
}

func (p *plan) hits(op Op, key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := call{op, key}
	p.calls[c]++
	p.nest(c)
	limit := 0
	switch op {
	case Claim:
		limit = p.loss.claims
	case Settle, Release:
		limit = p.loss.ends
	case Renew:
	}
	return !p.stopped && p.calls[c] <= limit
}

// nest notes the locks that are held when a record is claimed.
func (p *plan) nest(c call) {
	switch {
	case keytext.IsRecord(c.key):
		if c.op == Claim && p.outside == "" && len(p.locks) > 0 {
			p.outside = p.locks[0]
		}
	case c.op == Claim:
		p.locks = append(p.locks, c.key)
	case c.op == Release, c.op == Settle:
		p.locks = slices.DeleteFunc(p.locks, func(key string) bool { return key == c.key })
	}
}

// lockOutside returns the key of a lock that was held when a record was claimed.
func (p *plan) lockOutside() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outside
}

// stop ends the loss.
func (p *plan) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// claimed reports whether there was a claim.
func (p *plan) claimed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		if c.op == Claim {
			return true
		}
	}
	return false
}
