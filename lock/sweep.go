package lock

import (
	"context"
	"time"
)

// sweep removes the entry of a claim that nobody waits for any more, now and
// whenever it may still appear.
//
// One compare-and-delete that finds nothing proves nothing: the claim may be in
// a socket buffer, in a proxy, or in the same batch of events that a stalled
// server works off in an order of its own. One that finds the entry proves no
// more, since a repetition of the claim may follow. So it takes two that were
// sent after the landing: when every goroutine with a claim of the token had
// returned, and the time in which a closed socket's bytes can still arrive had
// passed. The answer to the first says that the server has worked off what it
// had when that came; the second then finds what the first had overtaken. If all
// sends of the claim were answered in the end, one is enough.
type sweep struct {
	locker   *Locker
	ctx      context.Context //nolint:containedctx // values for observers and loggers; never canceled
	key      string
	token    string
	flight   *flight
	began    time.Time
	event    Event // what an observer is told; nothing of the lease, which may be on its next claim by then
	answered bool  // by the server, to an attempt that was sent after the landing
	swept    time.Time
}

func (e *Lease) sweep() *sweep {
	return &sweep{
		locker: e.locker,
		ctx:    context.WithoutCancel(e.parent),
		key:    e.key,
		token:  e.token,
		flight: e.flight,
		began:  time.Now(),
		event:  e.event(EventReaped, 0, nil),
	}
}

// attempt sends one compare-and-delete and reports whether the sweep is over.
// Close cannot wait for the network's longest delay, and what lands after the
// process has ended is gone after a lease at the latest.
func (s *sweep) attempt(closing bool) (done bool) {
	l := s.locker
	c := l.core
	if !s.swept.IsZero() {
		// The token stays known as dead for as long as a claim may last that it
		// had refused just before it was removed.
		return closing || time.Since(s.swept) >= c.longestBudget()
	}
	lag := c.maxLag
	if closing {
		lag = 0
	}
	landed := s.flight == nil || s.flight.landed(lag)
	last := landed && (s.answered || s.flight != nil && !s.flight.lost.Load())
	// One send: nobody waits for it, and after an outage there are many sweeps,
	// which must not be what keeps a store from coming back.
	r := exchangeWith(s.ctx, c, l.cfg.budget, 1, nil, func(ctx context.Context) (bool, error) {
		return c.store.Release(ctx, s.key, s.token)
	})
	if r.err != nil {
		l.trouble(s.ctx, r.err)
		return false
	}
	s.answered = s.answered || landed
	if r.value {
		c.recent.note(EventReaped, s.event.Key)
		found := s.event
		found.Took = time.Since(s.began)
		l.announce(s.ctx, found)
	}
	if last {
		s.swept = time.Now()
	}
	return closing && !s.swept.IsZero()
}
