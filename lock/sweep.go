package lock

import (
	"context"
)

// sweep removes the entry of a claim that nobody waits for any more, now and
// whenever it may still appear.
//
// One compare-and-delete that finds nothing proves nothing: the claim may be in
// a socket buffer, in a proxy, or in the same batch of events that a stalled
// server works off in an order of its own. One that finds the entry proves no
// more, since a repetition of the claim may follow. So the last one counts only
// if, when it was sent, every goroutine with a claim of the token had returned,
// the server had answered an earlier command of this sweep, and the time in
// which a closed socket's bytes can still arrive had passed.
type sweep struct {
	locker   *Locker
	ctx      context.Context //nolint:containedctx // values for observers and loggers; never canceled
	key      string
	token    string
	flight   *flight
	event    Event // what an observer is told; nothing of the lease, which may be on its next claim by then
	answered bool  // by the server, to an earlier attempt
}

func (e *Lease) sweep() *sweep {
	return &sweep{
		locker: e.locker,
		ctx:    context.WithoutCancel(e.parent),
		key:    e.key,
		token:  e.token,
		flight: e.flight,
		event:  e.event(EventReaped, 0, nil),
	}
}

// attempt sends one compare-and-delete and reports whether it was the last
// that is needed. Close cannot wait for the network's longest delay, and what
// lands after the process has ended is gone after a lease at the latest.
func (s *sweep) attempt(closing bool) (done bool) {
	l := s.locker
	c := l.core
	lag := c.maxLag
	if closing {
		lag = 0
	}
	last := s.answered &&
		(s.flight == nil || s.flight.landed(lag))
	r := exchange(s.ctx, c, l.cfg.budget, nil, func(ctx context.Context) (bool, error) {
		return c.store.Release(ctx, s.key, s.token)
	})
	if r.err != nil {
		l.trouble(s.ctx, r.err)
		return false
	}
	s.answered = true
	if r.value {
		l.announce(s.ctx, s.event)
	}
	return last && !r.unanswered
}
