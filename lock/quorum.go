package lock

import (
	"errors"
	"fmt"
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
// has to be given the same ones. The store has a method
// Check(ctx context.Context) error, which says whether a majority answers and
// passes its own check, and finds two that are one server, or one that is a
// Cluster. Close what the stores are over yourself, after the Locker.
//
// NewQuorum panics if there are fewer than three stores or an even number, if
// one is nil or given twice, and if one is a quorum, or sealed.
//
// # What it does
//
// It keeps locks and cool-downs. All nodes are asked at once, each for at most
// [WithNodeTimeout], and the majority's answer is the answer: a slow minority
// delays no grant. A claim that gets no majority is taken back on every node, also
// where its success is reported only later. If it was because several claims have
// shared the nodes among them, the Locker claims again after a random pause, as long
// as its budget lasts.
//
// A release and a cool-down are sent three times to a node that does not answer. If
// it goes on not answering, what it has ends with the lease.
//
// A renewal that a majority confirms brings the entry back to nodes that have
// lost it; without the majority nothing is ever created again.
//
// # What it does not
//
// There are no receipts. Which of several answers counts would have to be agreed on
// by the nodes, which do not know each other. [Locker.Once] returns an error that
// matches errors.ErrUnsupported, and middleware.Idempotent and middleware.Dedupe
// panic: use one Redis for them, with replicas behind Sentinel or in a Cluster. One
// program can have a Locker over that and another one over a quorum.
//
// There are no hints, and no pages of [Inspector]: callers that wait ask again after
// random pauses, and an operator's tool reads the whole list.
//
// There are no fences: of several nodes with clocks of their own no number can
// be had that grows with every grant. [New] panics if asked for them.
//
// The promise of a lease rests on a majority of nodes keeping what they have
// confirmed for as long as the lease lasts, and on their clocks running equally
// fast, within [WithDriftFactor]. A node that restarts empty has broken the
// first; two of three that do so within a lease make two holders. Let nodes save
// every write, or stay away for a lease after a crash. A cool-down is not renewed,
// so a node that has lost one does not get it back.
func NewQuorum(stores []Store, opts ...QuorumOption) Store {
	checkNodes(stores)
	q := &quorum{
		quorumConfig: quorumConfig{timeout: 50 * time.Millisecond, factor: 0.01},
		given:        slices.Clone(stores),
		need:         len(stores)/2 + 1,
		tokens:       tokens{all: make(map[tokenID]*calls)},
	}
	for _, o := range opts {
		if o == nil {
			panic("lock: NewQuorum: nil QuorumOption")
		}
		o.applyQuorum(&q.quorumConfig)
	}
	inspectors := make([]Inspector, 0, len(stores))
	for i, s := range stores {
		q.all = append(q.all, i)
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
	given  []Store // the nodes
	all    []int   // their indices
	need   int     // votes for a majority
	outage outage
	tokens tokens
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
		case *sealed, sealedInspector:
			panic(fmt.Sprintf("lock: NewQuorum: stores[%d] is sealed; a quorum keeps no receipts, so there is nothing to seal: give it the store itself", i))
		}
		for j := range i {
			if v.Comparable() && stores[j] == s {
				panic(fmt.Sprintf("lock: NewQuorum: stores[%d] and stores[%d] are the same, and would fail together; "+
					"give every node a server of its own", j, i))
			}
		}
	}
}

// quorumIn returns the quorum that store is, nil if it is none.
func quorumIn(store Store) *quorum {
	switch s := store.(type) {
	case *quorum:
		return s
	case inspectedQuorum:
		return s.quorum
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
	for _, node := range q.given {
		longest = max(longest, lagOf(node))
	}
	return longest + sendsToNode*(q.timeout+maxNodePause)
}

// driftOver returns how much earlier than store a holder has to stop relying
// on a lease.
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

// LocksOnly is the optional method of a [Store] that keeps no receipts.
func (*quorum) LocksOnly() error { return errQuorumReceipt }

// locksOnly returns why store keeps no receipts, nil if it does.
func locksOnly(store Store) error {
	if s, ok := store.(interface{ LocksOnly() error }); ok {
		return s.LocksOnly()
	}
	return nil
}

// unsupportedError says what a quorum cannot do, and what can.
type unsupportedError string

const (
	errQuorumFence   unsupportedError = "lock: a quorum has no fences: fence over one Redis, or let a constraint of the database refuse late writes"
	errQuorumReceipt unsupportedError = "lock: a quorum keeps locks and cool-downs, and no receipts: " +
		"for Once, Idempotent and Dedupe use one Redis, with replicas behind Sentinel or in a Cluster"
)

func (e unsupportedError) Error() string { return string(e) }

// Is says that the call was not made, and would not be the next time.
func (unsupportedError) Is(target error) bool {
	return target == ErrNotApplied || target == errors.ErrUnsupported
}
