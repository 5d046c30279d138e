package group

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// maxHanging bounds the goroutines of batches that hang, in a hook for example.
const maxHanging = 256

// dispatch sends queued commands, as far as the window allows.
func (g *Group) dispatch(now time.Time) {
	for b := g.next(now); b != nil; b = g.next(now) {
		go g.work(b)
	}
	if !g.ticking && len(g.batches)+g.ends.len+g.claims.len > 0 {
		g.ticking = true
		time.AfterFunc(tick, g.tick)
	}
}

// late reports whether c would be answered too late if it left the queue at then. Round trips
// differ most when there is a queue, so a command that waits must have twice the usual time left. A
// command that has half of its time left is never late: some command has to measure the present
// time of an answer.
func (g *Group) late(c *Command, then time.Time) bool {
	half := c.deadline.Sub(c.arrived) / 2
	return c.deadline.Sub(then) < min(half, 2*g.window.usual)
}

// belowDirectLimit reports whether the next command has a round trip of its own.
func (g *Group) belowDirectLimit() bool { return g.inFlight < min(g.sharing.limit(), g.window.size) }

// next returns the batch to send now, nil if there is none. A command that is too late for an
// answer is not sent.
func (g *Group) next(now time.Time) *Batch {
	waiting := g.ends.len + g.claims.len
	if waiting == 0 || !g.belowDirectLimit() && !g.window.room(g.running(now), waiting) {
		return nil
	}
	b := new(Batch).begin(now)
	for most := g.window.batch(); len(b.members) < most; {
		c := g.ends.first()
		if c == nil {
			c = g.claims.first()
		}
		large := c != nil && c.large()
		if c == nil || large && len(b.members) > 0 {
			break
		}
		c.queue.len--
		switch {
		case !now.Before(c.deadline):
			c.finish(nil, failure.NotSent(context.DeadlineExceeded))
		case c.Yields && g.late(c, now):
			c.finish(nil, g.refused(c, "overload", errOverload, now))
		default:
			b.limited = b.limited || c.arrived.Before(now)
			if b.add(c); large {
				b.large, most = true, 0
			}
		}
	}
	g.gauge.Waiting(now, g.claims.len > 0)
	if len(b.members) == 0 {
		return nil
	}
	g.depart(b)
	return b
}

func (g *Group) depart(b *Batch) {
	g.inFlight += len(b.members)
	g.batches = append(g.batches, b)
	g.window.ask(b)
	b.inFlight = g.inFlight
	b.filled = g.inFlight > g.window.size/2 && !g.belowDirectLimit() && !g.window.room(g.running(b.began), g.window.most)
}

// running returns the number of batches in flight for which the next batch has to wait. A batch
// whose time is over does not count, because it has no caller left. Neither does a batch that
// stalls, because it only occupies a connection.
func (g *Group) running(now time.Time) int {
	if len(g.batches) >= maxHanging {
		return g.config.Batches
	}
	n, stalled, overdue := 0, 0, 0
	for _, b := range g.batches {
		switch {
		case b.Err() != nil:
		case g.window.stalls(b, now):
			stalled++
		case g.window.overdue(b, now):
			overdue++
			fallthrough
		default:
			n++
		}
	}
	switch {
	case n+stalled >= g.config.Batches:
		return g.config.Batches
	case n == 1 && overdue == 1: // one more finds out whether it is the server, or a connection
		return 0
	}
	return n
}
