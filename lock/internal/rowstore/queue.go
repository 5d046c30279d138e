package rowstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// LongestWait bounds the wait of work for a connection of the pool. While the wait
// would be longer, work is refused before its key is claimed: a claim would take server time
// from the waiting work.
const LongestWait = 5 * time.Second

// Queue counts the calls that wait for a connection, and measures how fast they get one, so
// that a claim which would be served too late is refused at once. The server would otherwise
// execute it after its caller has gone, and its entry would have to be removed.
type Queue struct {
	mu      sync.Mutex
	gauge   send.Gauge
	waiting int
}

// change begins a wait, or ends one. served says that the call got a connection.
func (q *Queue) change(by int, served bool) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if served {
		q.gauge.Served(now, 1)
	}
	q.waiting += by
	q.gauge.Waiting(now, q.waiting > 0)
}

// Through counts a wait in q, also if it ends in a panic of the pool's hook.
func Through[T any](q *Queue, wait func() (T, error)) (got T, err error) {
	served := false
	q.change(+1, false)
	defer func() { q.change(-1, served) }()
	got, err = wait()
	served = err == nil
	return got, err
}

// Acquire waits in q and at g for a connection, which connect returns. The caller calls g.Leave after its
// use, and not after an error.
func Acquire[T any](ctx context.Context, q *Queue, g *Gate, r Rank, connect func() (T, error)) (T, error) {
	return Through(q, func() (conn T, err error) {
		if err = g.Enter(ctx, r); err != nil {
			return conn, err
		}
		connected := false // connect may panic
		defer func() {
			if !connected {
				g.Leave()
			}
		}()
		conn, err = connect()
		connected = err == nil
		return conn, err
	})
}

// wait returns how long a new call would wait, 0 if too little is known.
func (q *Queue) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gauge.Wait(q.waiting)
}

// Rank is the priority with which a call gets one of the store's own connections.
type Rank int

// The ranks.
const (
	First Rank = iota // for renewals and ends of leases, and the later statements of a claim
	Later             // for claims, queries and clean-up
	ranks
)

// OwnConnections is the number of a store's own connections, in addition to those of its work.
const OwnConnections = 4

// Gate lets as many calls through as there are own connections, calls of the first rank before
// others. Calls of one rank go in their order of arrival.
type Gate struct {
	mu      sync.Mutex
	taken   int
	waiting [ranks][]chan struct{} // each is closed when its turn has come
}

// Enter waits for the call's turn. After an error the caller must not call Leave.
func (g *Gate) Enter(ctx context.Context, r Rank) error {
	g.mu.Lock()
	if g.taken < OwnConnections {
		g.taken++
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	g.waiting[r] = append(g.waiting[r], turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting[r], turn)
	if at < 0 { // the turn came at the same time
		return nil
	}
	g.waiting[r] = slices.Delete(g.waiting[r], at, at+1)
	return context.Cause(ctx)
}

// Leave gives the turn to the next.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r, turns := range g.waiting {
		if len(turns) > 0 {
			g.waiting[r] = turns[1:]
			close(turns[0])
			return
		}
	}
	g.taken--
}

// Wait returns when the calls that have entered, or wait, have left.
func (g *Gate) Wait() {
	for range OwnConnections {
		_ = g.Enter(context.Background(), Later) //nolint:forbidigo // it has no end
		defer g.Leave()
	}
}

// Admit refuses a claim that would wait in calls for more than half of its time: the other half is
// for its answer. A claim of work in a transaction is also refused if the work would wait in begins for
// more than LongestWait. A retry within the same budget would be refused too.
func Admit(ctx context.Context, calls, begins *Queue, work bool) error {
	var why string
	if end, ok := ctx.Deadline(); ok && calls.wait() > time.Until(end)/2 {
		why = "too many calls wait: the database cannot serve this one in time"
	} else if work && begins.wait() > LongestWait {
		why = "too much work waits: no connection of the pool is free in " + LongestWait.String()
	} else {
		return nil
	}
	return Classed(fmt.Errorf("%w: %w: %s", lock.ErrNotApplied, lock.ErrDenied, why), "overload")
}
