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

// longestWait is for how long work may have to wait for a connection of the pool. While it
// would be longer, work is refused before its key is claimed: each claim takes time from
// the server that the work which waits would need.
const longestWait = 5 * time.Second

// queue is what waits for a connection. It measures how fast the first in it get one, so
// that a claim which would not be served in its time is refused at once: the server would
// execute it when its caller has gone, and its entry would have to be removed.
type queue struct {
	mu      sync.Mutex
	gauge   admission.Gauge
	waiting int
}

func (q *queue) enter() { q.change(+1, false) }

// leave is the end of a wait. served says that there was a connection.
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

// through runs a wait in q. It is over however it ends: a hook of a pool may panic.
func through[T any](q *queue, wait func() (T, error)) (got T, err error) {
	served := false
	q.enter()
	defer func() { q.leave(served) }()
	got, err = wait()
	served = err == nil
	return got, err
}

// wait is how long a call would wait that came now, 0 if too little is known.
func (q *queue) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gauge.Wait(q.waiting)
}

// rank is the order in which calls get one of the store's own connections.
type rank int

const (
	first rank = iota // what ends a lease or keeps it, and what a claim that has begun still needs
	later             // what begins: claims, looks, clean-up
	ranks
)

// gate lets as many calls through as there are connections. Calls of one rank are served as
// they have come.
type gate struct {
	mu      sync.Mutex
	taken   int
	waiting [ranks]list.List // of channels that are closed when the turn has come
}

// enter waits for the call's turn. After an error there is nothing to leave.
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
	case <-turn: // has come at the same time
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

// admit refuses a claim that would not be served in its time, half of which is for its
// answer, or whose work would wait for too long.
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

// overloadError is a refusal that no repetition within the same budget would help.
type overloadError struct{ error }

// Unwrap makes it certain, and final for this call.
func (e overloadError) Unwrap() []error { return []error{e.error, lock.ErrNotApplied, lock.ErrDenied} }

// Class is a short and stable name of it, to count by.
func (overloadError) Class() string { return "overload" }

// Cure is what an operator can do about it.
func (overloadError) Cure() string {
	return "work comes faster than the database serves it; a faster one, fewer callers, or if it is idle, a larger pool end it"
}
