// Package quorum makes one store for locks and cool-downs of several independent ones, as
// Redlock describes it: what a majority of them grants is granted. It works on while a
// minority is down, slow or cut off, and while one that has forgotten everything is back.
//
//	var stores []lock.Store
//	for _, url := range urls { // redis://a:6379, redis://b:6379, redis://c:6379
//		s, err := redisstore.Open(ctx, url, redisstore.WithPrefix("shop:"))
//		...
//		stores = append(stores, s)
//	}
//	locker := lock.New(quorum.New(stores))
//
// Each store has to be a server of its own, which fails by itself: a master
// without the others' replicas, not a part of a Cluster with them. Every process
// has to be given the same ones. [Store.Check] says whether a majority answers and
// passes its own check, and finds two that are one server, or one that is a
// Cluster.
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
// by the nodes, which do not know each other. [lock.Locker.Once] returns an error that
// matches errors.ErrUnsupported, and middleware.Idempotent and middleware.Dedupe
// panic: use one Redis for them, with replicas behind Sentinel or in a Cluster. One
// program can have a Locker over that and another one over a quorum.
//
// There are no hints, and no pages of [lock.Pager]: callers that wait ask again after
// random pauses, and an operator's tool reads the whole list.
//
// There are no fences: of several nodes with clocks of their own no number can
// be had that grows with every grant. [lock.New] panics if asked for them.
//
// The promise of a lease rests on a majority of nodes keeping what they have
// confirmed for as long as the lease lasts, and on their clocks running equally
// fast, within [WithDriftFactor]. A node that restarts empty has broken the
// first; two of three that do so within a lease make two holders. Let nodes save
// every write, or stay away for a lease after a crash. A cool-down is not renewed,
// so a node that has lost one does not get it back.
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
// even number, if one is nil or given twice, and if one is a quorum. The caller closes
// what the stores are over, after the Locker.
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
// [lock.Inspector] if all nodes are.
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
	_ lock.Checker   = (*Store)(nil)
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

// Describe is part of [lock.Describer]. A call can still have an effect as long after
// its return as on any node, after the time for which the calls on that node may
// outlast the one on the quorum. The drift is the Locker's to subtract, because a
// holder's validity is measured there: from before the first send of its token, whereas
// this store sees one send of several, and of a renewal returns no more than yes.
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
	}
}

// unsupportedError says what a quorum cannot do, and what can.
type unsupportedError string

const (
	errFence unsupportedError = "quorum: there are no fences, since no number grows with every grant on nodes with counters of their own: " +
		"fence over one Redis, or let a constraint of the database refuse late writes"
	errReceipt unsupportedError = "quorum: it keeps locks and cool-downs, and no receipts: " +
		"for Once, Idempotent and Dedupe use one Redis, with replicas behind Sentinel or in a Cluster"
)

func (e unsupportedError) Error() string { return string(e) }

// Is says that the call was not made, and would not be the next time.
func (unsupportedError) Is(target error) bool {
	return target == lock.ErrNotApplied || target == errors.ErrUnsupported
}
