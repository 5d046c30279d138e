package pgstore

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/admission"
)

// longestWait bounds the wait of work for a connection of the pool. While the wait
// would be longer, work is refused before its key is claimed: a claim would take server time
// from the waiting work.
const longestWait = 5 * time.Second

// queue counts the calls that wait for a connection, and measures how fast they get one, so
// that a claim which would be served too late is refused at once. The server would otherwise
// execute it after its caller has gone, and its entry would have to be removed.
type queue struct {
	mu      sync.Mutex
	gauge   admission.Gauge
	waiting int
}

func (q *queue) enter() { q.change(+1, false) }

// leave ends a wait. served says that the call got a connection.
func (q *queue) leave(served bool) { q.change(-1, served) }

func (q *queue) change(by int, served bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if served {
		q.gauge.Served(now, 1)
	}
	q.waiting += by
	q.gauge.Waiting(now, q.waiting > 0)
}

// through counts a wait in q, also if it ends in a panic of the pool's hook.
func through[T any](q *queue, wait func() (T, error)) (got T, err error) {
	served := false
	q.enter()
	defer func() { q.leave(served) }()
	got, err = wait()
	served = err == nil
	return got, err
}

// wait returns how long a new call would wait, 0 if too little is known.
func (q *queue) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gauge.Wait(q.waiting)
}

// rank is the order in which calls get one of the store's own connections.
type rank int

const (
	first rank = iota // renewals and ends of leases, and the later statements of a claim
	later             // claims, queries, clean-up
	ranks
)

// gate lets as many calls through as there are connections, calls of the first rank before
// others. Calls of one rank go in their order of arrival.
type gate struct {
	mu      sync.Mutex
	taken   int
	waiting [ranks]list.List // of channels, closed when the turn has come
}

// enter waits for the call's turn. After an error the call does not leave.
func (g *gate) enter(ctx context.Context, r rank) error {
	g.mu.Lock()
	if g.taken < ownConnections {
		g.taken++
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	place := g.waiting[r].PushBack(turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-turn: // came at the same time
		return nil
	default:
		g.waiting[r].Remove(place)
		return context.Cause(ctx)
	}
}

// leave gives the turn to the next.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r := range g.waiting {
		if next := g.waiting[r].Front(); next != nil {
			g.waiting[r].Remove(next)
			close(next.Value.(chan struct{})) //nolint:errcheck // enter puts in nothing else
			return
		}
	}
	g.taken--
}

// admit refuses a claim that would not be served in half of its time (the other half is for
// its answer), or whose work would wait for too long.
func (s *Store) admit(ctx context.Context, work bool) error {
	if end, ok := ctx.Deadline(); ok && s.calls.wait() > time.Until(end)/2 {
		return overloadError{errClaimsWait}
	}
	if work && s.begins.wait() > longestWait {
		return overloadError{errWorkWaits}
	}
	return nil
}

var (
	errClaimsWait = errors.New("pgstore: more calls wait than the database serves in the time that this one has")
	errWorkWaits  = errors.New("pgstore: more work waits for a connection of the pool than gets one in " + longestWait.String())
)

// overloadError refuses a call. A retry within the same budget would be refused too.
type overloadError struct{ error }

// Unwrap makes the refusal certain, and final for this call.
func (e overloadError) Unwrap() []error { return []error{e.error, lock.ErrNotApplied, lock.ErrDenied} }

// Class is a short and stable name, to count by.
func (overloadError) Class() string { return "overload" }

// Cure returns an operator's remedy.
func (overloadError) Cure() string {
	return "work comes faster than the database serves it; a faster one, fewer callers, or if it is idle, a larger pool end it"
}
