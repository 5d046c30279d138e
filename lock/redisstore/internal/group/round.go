package group

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

const (
	// tick is the interval at which a group with work looks for callers whose time is over, and for
	// round trips that stall. It can notice them late by one interval.
	tick = 5 * time.Millisecond

	// perQueued delays the look through a queue by this time for each command in it: a queue of
	// 10,000 is not looked through at every tick.
	perQueued = 2 * time.Microsecond
)

// leave separates c from its caller, which no longer waits. flight is notified of the end. It
// reports false if c is done.
func (g *Group) leave(c *Command, why error, flight *send.Flight) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.state {
	case queued:
		c.queue.len--
		g.gauge.Waiting(time.Now(), g.claims.len > 0)
		c.state, c.err = done, failure.NotSent(why)
	case sent:
		c.detach(why, flight)
	case left, done:
		return false
	}
	return true
}

// work sends b, and after its answer the commands that are queued by then.
func (g *Group) work(b *Batch) {
	for b != nil {
		b = g.round(b)
	}
}

// round sends b, unless it is nil, and finishes its members. It returns the batch to send
// next, nil if there is none.
func (g *Group) round(b *Batch) (next *Batch) {
	if b == nil {
		return nil
	}
	err, returned := failure.ErrUnsettled, false
	defer func() { // also if a hook of the client panics, or ends the goroutine
		if p := recover(); p != nil {
			err = failure.OfHook(p)
		}
		if next = g.answered(b, err); next != nil && !returned {
			go g.work(next) // this goroutine may be ending
			next = nil
		}
	}()
	if b.outer = g.config.Outer; b.outer {
		err = b.transmit(func() error { return g.config.Send(b) })
	} else {
		err = g.config.Send(b)
	}
	returned = true
	return nil
}

// answered finishes the members of b, which ended with why.
func (g *Group) answered(b *Batch, why error) (next *Batch) {
	sends := b.close()
	g.mu.Lock()
	now := time.Now()
	served, claims := 0, 0
	for _, m := range b.members {
		c := m.(*Command) //nolint:errcheck,forcetypeassert // nothing else is added
		answer, err, replied := b.outcome(c, sends, why)
		if c.how = send.Lost; replied {
			c.how = send.Answered
			served++
			if c.Yields && (b.limited || g.claims.len > 0) {
				claims++
			}
		}
		if errors.Is(err, lock.ErrNotApplied) {
			c.how = send.Nothing
		}
		if c.state == sent {
			c.finish(answer, err)
		}
	}
	g.gauge.Served(now, claims)
	several := g.inFlight+g.ends.len+g.claims.len > 1 && g.config.Share > 1
	g.sharing.learn(now, served, several, g.window.usual > 4*short)
	if served > 0 {
		g.window.learn(b, now)
	}
	g.inFlight -= len(b.members)
	i := slices.Index(g.batches, b)
	if served > 0 {
		for _, earlier := range g.batches[:i] {
			earlier.overtakenBy++
		}
	}
	g.batches = slices.Delete(g.batches, i, i+1)
	next = g.next(now)
	g.mu.Unlock()
	for _, m := range b.members {
		if c := m.(*Command); c.state == left { //nolint:errcheck,forcetypeassert // nothing else is added
			c.flight.Arrive(c.how)
		}
	}
	return next
}

// tick ends the wait of callers whose time is over, and of callers that send again instead. It
// sends further batches if one stalls.
func (g *Group) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, b := range g.batches {
		if !now.Before(b.until) {
			b.end()
		}
		if b.direct {
			continue // its caller waits for the client, which obeys the end of the context
		}
		early := g.window.overtaken(b, now)
		for _, m := range b.members {
			c := m.(*Command) //nolint:errcheck,forcetypeassert // nothing else is added
			if c.state == sent && c.try != nil && (!now.Before(c.deadline) || c.try.GiveUp(now.Sub(b.began)) || early && c.try.GiveUpEarly()) {
				c.detach(send.ErrGivenUp, send.InFlight(c.try))
				c.over <- struct{}{}
			}
		}
	}
	if now.Sub(g.looked) >= time.Duration(g.ends.len+g.claims.len)*perQueued {
		g.looked = now
		for _, q := range []*queue{&g.ends, &g.claims} {
			q.head, q.all = 0, slices.DeleteFunc(q.all, func(c *Command) bool {
				if c.state == queued && !now.Before(c.deadline) {
					q.len--
					c.finish(nil, failure.NotSent(context.DeadlineExceeded))
				}
				return c.state != queued
			})
		}
		g.gauge.Waiting(now, g.claims.len > 0)
	}
	g.ticking = false
	g.dispatch(now)
}
