package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"
)

// NewQuorum returns a [Store] over several independent ones, as Redlock
// describes it: what a majority of them grants is granted. It works on while a
// minority is down, slow or cut off, and while one that has forgotten
// everything is back. It is an [Inspector] if all stores are.
//
//	var stores []lock.Store
//	for _, url := range urls { // redis://a:6379, redis://b:6379, redis://c:6379
//		s, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"))
//		...
//		stores = append(stores, s)
//	}
//	locker := lock.New(lock.NewQuorum(stores))
//
// Each store has to be a server of its own, which fails by itself: a master
// without the others' replicas, not a part of a Cluster with them. Every process
// has to be given the same ones, in the same order. The store has a method
// Check(ctx context.Context) error, which says whether a majority answers and
// passes its own check, and finds two that are one server, or one that is a
// Cluster. Close what the stores are over yourself, after the Locker.
//
// NewQuorum panics if there are fewer than three stores or an even number, if
// one is nil or given twice, and if one is a quorum, or sealed: seal the
// quorum, not its nodes.
//
// # What it does
//
// All nodes are asked at once, each for at most [WithNodeTimeout], and the
// majority's answer is the answer: a slow minority delays no grant. A claim that
// gets no majority is taken back on every node, also where its success is only
// heard of later. If it was because several claims have shared the nodes among
// them, it is tried again ([WithRetry]).
//
// A release is told three times to a node that does not answer. If it goes on
// not answering, what it has ends with the lease.
//
// A renewal that a majority confirms brings the entry back to nodes that have
// lost it; without the majority nothing is ever created again.
//
// A receipt that is known to a single node is found by every claim that hears of
// it, and written to the nodes that lack it, for as long as it has left. It is
// told when a majority has it, and never before: so the first receipt that
// anybody is told of is everybody's. One of a holder that had lost its lease is
// not told while a later attempt may leave another; if that has, it is the later
// one that counts.
//
// A claim that takes over an abandoned entry waits for all nodes, because a
// single one may have the receipt, and starts with one node, so that of several
// such claims the first one there has the others too. If it meets a receipt, it
// makes way for that. What a failed one has taken, is not given back unless a
// majority has something newer: it lapses, so that nobody forgets that there was
// an attempt.
//
// # What it does not
//
// The promise of a lease rests on a majority of nodes keeping what they have
// confirmed for as long as the lease lasts, and on their clocks running equally
// fast, within [WithDriftFactor]. A node that restarts empty has broken the
// first; two of three that do so within a lease make two holders. Let nodes save
// every write, or stay away for a lease after a crash.
//
// There are no fences: of several nodes with clocks of their own no number can
// be had that grows with every grant. [New] panics if asked for them.
func NewQuorum(stores []Store, opts ...QuorumOption) Store {
	checkNodes(stores)
	cfg := quorumConfig{timeout: 50 * time.Millisecond, factor: 0.01, tries: 3, delay: 200 * time.Millisecond}
	for _, o := range opts {
		if o == nil {
			panic("lock: NewQuorum: nil QuorumOption")
		}
		o.applyQuorum(&cfg)
	}
	q := &quorum{quorumConfig: cfg, given: slices.Clone(stores), need: len(stores)/2 + 1}
	q.candidates.now = make(map[candidacy]*candidate)
	inspectors := make([]Inspector, 0, len(stores))
	for i, s := range stores {
		q.all = append(q.all, i)
		q.nodes = append(q.nodes, shielded(s, &q.outage, slog.Default()))
		q.lags = append(q.lags, lagOf(s))
		if inspector, ok := s.(Inspector); ok {
			inspectors = append(inspectors, inspector)
		}
	}
	if len(inspectors) < len(stores) {
		return q
	}
	return inspectedQuorum{q, inspectors}
}

// quorum is a Store over an odd number of others, its nodes.
type quorum struct {
	quorumConfig
	given      []Store // as New has them: for what a store can do beyond the interface
	nodes      []Store // what calls go to
	outage     outage
	all        []int // their indices
	lags       []time.Duration
	need       int // votes for a majority
	candidates candidates
}

var (
	_ Store     = (*quorum)(nil)
	_ Inspector = inspectedQuorum{}
)

func checkNodes(stores []Store) {
	if n := len(stores); n < 3 || n%2 == 0 {
		panic(fmt.Sprintf("lock: NewQuorum with %d stores: an odd number is needed, three or more: with two, or one more than an odd number, "+
			"there is one more that can fail, and no more that may", n))
	}
	for i, s := range stores {
		v := reflect.ValueOf(s)
		if s == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			panic(fmt.Sprintf("lock: NewQuorum: stores[%d] is nil", i))
		}
		if quorumIn(s) != nil {
			panic(fmt.Sprintf("lock: NewQuorum: stores[%d] is a quorum itself; list its stores instead", i))
		}
		switch s.(type) {
		case *sealed, sealedInspector, sealedPrompt:
			// A receipt that a node cannot open would count as no answer of that
			// node, and the work would run again.
			panic(fmt.Sprintf("lock: NewQuorum: stores[%d] is sealed; seal the quorum instead: NewSealed(NewQuorum(stores), aead)", i))
		}
		for j := range i {
			if v.Comparable() && stores[j] == s {
				panic(fmt.Sprintf("lock: NewQuorum: stores[%d] and stores[%d] are the same, and would fail together; "+
					"give every node a server of its own", j, i))
			}
		}
	}
}

// quorumIn returns the quorum that store is or seals, nil if there is none.
func quorumIn(store Store) *quorum {
	switch s := store.(type) {
	case *quorum:
		return s
	case inspectedQuorum:
		return s.quorum
	case *sealed:
		return quorumIn(s.Store)
	case sealedInspector:
		return quorumIn(s.Store)
	}
	return nil
}

func lagOf(s Store) time.Duration {
	if s, ok := s.(interface{ MaxLag() time.Duration }); ok {
		return s.MaxLag()
	}
	return defaultMaxLag
}

// MaxLag bounds how long after a call has returned it can still have an effect:
// as long as on any node, after the time for which the calls on that node may
// outlast the one on the quorum.
func (q *quorum) MaxLag() time.Duration {
	longest := time.Duration(0)
	for _, lag := range q.lags {
		longest = max(longest, lag)
	}
	return longest + sendsToNode*(q.timeout+maxNodePause)
}

// driftOver returns how much earlier than store a holder has to stop to believe
// in a lease.
func driftOver(store Store) func(lease time.Duration) time.Duration {
	if q := quorumIn(store); q != nil {
		return q.drift
	}
	return drift
}

// checkFencing panics if fences are asked for where there are none.
func checkFencing(store Store, cfg *config) {
	if cfg.fenced && quorumIn(store) != nil {
		panic("lock: WithFencing over a quorum: the nodes' clocks and counters differ, so no number grows with every grant; " +
			"fence over a single store, or let a constraint of the database refuse late writes")
	}
}

var errQuorumFence = fmt.Errorf("%w: a quorum has no fences: %w", ErrNotApplied, errors.ErrUnsupported)

// fit returns the error of a call that is not made at all.
func (*quorum) fit(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotApplied, context.Cause(ctx))
	}
	return nil
}
