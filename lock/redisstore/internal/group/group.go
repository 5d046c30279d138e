// Package group implements group commit: commands of many callers share round trips to one
// server. A command that has not left the queue is certainly not applied.
package group

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/admission"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

const (
	// endless stands for the time of a caller without a deadline.
	endless = time.Hour
)

var (
	errQueueFull = errors.New("too many calls wait for the server")
	errOverload  = errors.New("too many calls wait: the server cannot serve this one in time")
)

// Config has the settings of a [Group], and its way to the server.
type Config struct {
	Share   int                // the most commands in a batch
	Batches int                // the most batches in flight: one for each connection
	Queue   int                // the most commands that wait: claims, and ends of leases
	Send    func(*Batch) error // blocks until the round trip is over
	Outer   bool               // Send does not call Transmit of its commands
	Direct  *atomic.Bool       // Send returns in time, so a caller may wait in it
}

// Group sends commands to one server. Up to about a dozen commands in flight, each has a
// round trip of its own, unless a trial finds that they are served better together
// ([sharing]). Further commands wait in a queue, which is sent as one pipeline when an
// earlier batch has been answered.
//
// The queue gives certainty. A command that has not left it was not applied, and is taken
// back at no cost. A command that has left it is unknown until it is answered. If its caller does
// not wait for the answer, the Flight of the call is notified of the end exactly once. So the store
// keeps few commands in flight to a slow server ([window]). A command that the server cannot serve
// in its time, at its present rate, is refused on arrival as not applied.
//
// Commands that end a lease overtake commands that claim one. Otherwise served callers would
// wait behind unserved ones.
type Group struct {
	config Config
	overs  sync.Pool // of empty channels without a caller, for callers to wait on

	mu       sync.Mutex
	ends     queue // commands that do not yield
	claims   queue // commands that yield
	inFlight int   // commands that have left the queue and are not answered
	batches  []*Batch
	window   window
	sharing  sharing
	gauge    admission.Gauge
	ticking  bool
	looked   time.Time // when the group last looked through the queues
}

// queue holds commands in the order of arrival. A command that has left out of its turn stays
// in all until the next look through the queue.
type queue struct {
	all  []*Command
	head int // index of the first command that may wait
	len  int // commands that wait
}

func (q *queue) first() *Command {
	for ; q.head < len(q.all); q.head++ {
		if q.all[q.head].state == queued {
			return q.all[q.head]
		}
	}
	clear(q.all)
	q.all, q.head = q.all[:0], 0
	return nil
}

// New returns a group for the server of c.
func New(c Config) *Group {
	g := &Group{config: c, window: newWindow(c.Share, c.Batches), sharing: newSharing(c.Batches)}
	g.overs.New = func() any { return make(chan struct{}, 1) }
	return g
}

// Do sends c and waits until it is answered, or ctx ends. The answer is nil if
// the server has answered nil.
func (g *Group) Do(ctx context.Context, c *Command) (any, error) {
	gone := ctx.Done
	c.caller, c.queue = ctx, &g.ends
	if c.try, _ = ctx.(*send.Try); c.try != nil {
		c.caller, gone = c.try.Caller(), c.try.GivenUp // the group itself obeys the deadline
	}
	if c.Yields = c.Yields || send.Cleaning(ctx); c.Yields {
		c.queue = &g.claims
	}
	select {
	case <-gone():
		return nil, failure.NotApplied("cancelled", c.caller.Err())
	default:
	}
	own, err := g.enqueue(ctx, c)
	if err != nil {
		return nil, err
	}
	if own == nil {
		g.wait(ctx, c, gone())
	} else if next := g.round(own); next != nil {
		go g.work(next)
	}
	return c.answer, c.err
}

// wait returns when c is done, or its caller has left.
func (g *Group) wait(ctx context.Context, c *Command, gone <-chan struct{}) {
	select {
	case <-c.over:
	case <-gone:
		if !g.leave(c, c.caller.Err(), send.InFlight(ctx)) {
			<-c.over // c was answered meanwhile
		}
	}
	g.overs.Put(c.over) // empty, and without a sender
}

// enqueue queues c, or returns the error with which c is refused. If it returns a batch, its caller
// sends the batch.
func (g *Group) enqueue(ctx context.Context, c *Command) (own *Batch, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var bounded bool
	if c.deadline, bounded = ctx.Deadline(); !bounded {
		c.deadline = now.Add(endless)
	}
	c.arrived = now
	switch {
	case !now.Before(c.deadline):
		return nil, failure.NotApplied("cancelled", context.DeadlineExceeded)
	case c.queue.len == g.config.Queue:
		return nil, g.refused(c, "queue", errQueueFull, now)
	case c.Yields && g.late(c, now.Add(g.gauge.Wait(g.claims.len))):
		return nil, g.refused(c, "overload", errOverload, now)
	case g.ends.len+g.claims.len == 0 && c.try != nil && g.config.Direct.Load() && g.belowDirectLimit():
		own = c.own.begin(now)
		own.add(c)
		own.direct, own.until = true, c.try.Until()
		g.depart(own)
	default:
		c.over = g.overs.Get().(chan struct{}) //nolint:errcheck,forcetypeassert // nothing else is in it
		c.queue.all = append(c.queue.all, c)
		c.queue.len++
		g.gauge.Waiting(now, g.claims.len > 0)
	}
	g.dispatch(now)
	return own, nil
}

// refused returns the error of a command that would be too late. Its class is "silent" if the
// server answers nothing at all, or did so while the command waited.
func (g *Group) refused(c *Command, class string, why error, now time.Time) error {
	if g.window.silent(now) || c.arrived.Before(g.window.silenceEnded) {
		class = "silent"
	}
	return failure.Refused(class, why)
}

// Pending returns the number of commands in flight, and in the queue.
func (g *Group) Pending() (inFlight, queued int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight, g.ends.len + g.claims.len
}

// Drain returns when no group has a pending command, or ctx ends.
func Drain(ctx context.Context, groups func() []*Group) {
	look := time.NewTicker(tick)
	defer look.Stop()
	for slices.ContainsFunc(groups(), (*Group).busy) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (g *Group) busy() bool {
	inFlight, queued := g.Pending()
	return inFlight+queued > 0
}
