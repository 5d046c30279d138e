package pgstore

import (
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

// wait is how long a call would wait that came now, 0 if too little is known.
func (q *queue) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gauge.Wait(q.waiting)
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
