// Package quorum makes one store for locks and cool-downs of several independent stores, as in
// Redlock: a majority of them grants. It goes on while a minority is down, slow or cut off, or
// has restarted empty.
//
//	var stores []lock.Store
//	for _, url := range urls { // redis://a:6379, redis://b:6379, redis://c:6379
//		s, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"))
//		...
//		stores = append(stores, s)
//	}
//	locker := lock.New(quorum.New(stores))
//
// Each store has to be a server that fails independently: a master without replicas of the
// others, and not part of a Cluster with them. Give every process the same stores.
// [Store.Check] checks that a majority answers and passes its own check, and detects two
// stores that are one server, and a store that is a Cluster.
//
// # How it works
//
// It keeps locks and cool-downs. All nodes are asked at the same time, each for at most
// [WithNodeTimeout], and the majority's answer is the answer: a slow minority delays no grant. A
// claim without a majority is taken back on every node, even if a node reports its success later.
// If concurrent claims shared the nodes, the Locker claims again after a random pause, within its
// budget.
//
// A release and a cool-down are sent three times to a node without an answer. After that, its
// entry ends with the lease.
//
// A renewal that a majority confirms restores the entry on nodes that have lost it. Without
// the majority no entry is ever created again.
//
// # Limits
//
// There are no receipts. The nodes, which do not know each other, would have to agree on one of
// several answers. [lock.Locker.Once] returns an error that matches errors.ErrUnsupported, and
// middleware.Idempotent and middleware.Dedupe panic: use one Redis for them, with replicas
// behind Sentinel or in a Cluster. A program can have one Locker over such a Redis and another
// over a quorum.
//
// No key is handed over ([lock.Lease.HandOver]). A hand-over replaces a holder, and a majority of
// nodes would have to replace the same holder. HandOver and [lock.Locker.Resume] return an error
// that matches errors.ErrUnsupported.
//
// There are no hints, and no pages of [lock.Inspector]: callers that wait poll at random intervals,
// and an operator's tool reads the whole list.
//
// There are no fences: several nodes with separate clocks cannot make a number that grows with
// every grant. [lock.New] panics with [lock.WithFencing].
//
// The promise of a lease has two conditions: a majority of nodes keeps its confirmed entries
// for as long as the lease lasts, and the clocks of the nodes run equally fast, within
// [WithDriftFactor]. A node that restarts empty breaks the first condition. If two of three nodes
// restart empty within a lease, there can be two holders. Let nodes save every write, or keep them
// down for a lease after a crash. A cool-down is not renewed, so a node that has lost one does not
// get it back.
package quorum

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/ratelog"
	"github.com/httplatch/httplatch/lock"
)

// New returns a [lock.Store] over stores. It panics if there are fewer than three or an
// even number, if one is nil or given twice, and if one is a quorum. The caller closes the
// clients of the stores, after the Locker.
func New(stores []lock.Store, opts ...Option) *Store {
	checkNodes(stores)
	q := &Store{
		config: config{timeout: 50 * time.Millisecond, factor: 0.01},
		given:  slices.Clone(stores),
		need:   len(stores)/2 + 1,
		tokens: tokens{all: make(map[tokenID]*calls)},
	}
	for _, o := range opts {
		if o == nil {
			panic("quorum: nil Option")
		}
		o.apply(&q.config)
	}
	for i := range stores {
		q.all = append(q.all, i)
	}
	return q
}

// Store is a [lock.Store] over an odd number of others, its nodes. It is a
// [lock.Inspector] if all nodes are Inspectors.
type Store struct {
	config
	given  []lock.Store // the nodes
	all    []int        // their indices
	need   int          // votes for a majority
	logged ratelog.Log
	tokens tokens
}

var (
	_ lock.Store     = (*Store)(nil)
	_ lock.Inspector = (*Store)(nil)
	_ lock.Describer = (*Store)(nil)
)

func checkNodes(stores []lock.Store) {
	if n := len(stores); n < 3 || n%2 == 0 {
		panic(fmt.Sprintf("quorum: New with %d stores: an odd number is needed, three or more: with two, or one more than an odd number, "+
			"there is one more that can fail, and no more that may", n))
	}
	for i, s := range stores {
		v := reflect.ValueOf(s)
		if s == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			panic(fmt.Sprintf("quorum: New: stores[%d] is nil", i))
		}
		if _, nested := s.(*Store); nested {
			panic(fmt.Sprintf("quorum: New: stores[%d] is a quorum itself; list its stores instead", i))
		}
		for j := range i {
			if v.Comparable() && stores[j] == s {
				panic(fmt.Sprintf("quorum: New: stores[%d] and stores[%d] are the same, and would fail together; "+
					"give every node a server of its own", j, i))
			}
		}
	}
}

// Describe is part of [lock.Describer]. MaxLag is the largest MaxLag of a node, plus the time by
// which a call on a node may outlast the call on the quorum. The Locker subtracts the drift, since
// it measures the validity of a holder from before the first send of its token. This store sees
// only single sends, and its answer to a renewal is only yes or no.
func (q *Store) Describe() lock.Description {
	longest := time.Duration(0)
	for _, node := range q.given {
		longest = max(longest, lock.Describe(node).MaxLag)
	}
	return lock.Description{
		MaxLag:     longest + sendsToNode*(q.timeout+maxNodePause),
		Drift:      q.factor,
		NoReceipts: errReceipt,
		NoFences:   errFence,
		Check:      q.Check,
	}
}

// unsupportedError names a feature that a quorum does not have, and a store with this feature.
type unsupportedError string

const (
	errFence unsupportedError = "quorum: there are no fences, since no number grows with every grant on nodes with counters of their own: " +
		"fence over one Redis, or let a constraint of the database refuse late writes"
	errReceipt unsupportedError = "quorum: it keeps locks and cool-downs, and no receipts: " +
		"for Once, Idempotent and Dedupe use one Redis, with replicas behind Sentinel or in a Cluster"
)

func (e unsupportedError) Error() string { return string(e) }

// Is matches the errors of a call that was not made, and never will be.
func (unsupportedError) Is(target error) bool {
	return target == lock.ErrNotApplied || target == errors.ErrUnsupported
}
