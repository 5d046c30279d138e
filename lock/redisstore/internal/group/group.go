// Package group is group commit: commands of many callers share round trips to one
// server, and a queue before them says for certain what was not sent.
package group

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/admission"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

const (
	// alone is up to how many commands in flight each has a round trip of its
	// own. Beyond it, sharing one is quicker than a connection for each. With a single
	// processor that is so from the second one on: of 8 callers, 1.8 times as many cycles
	// were served, of 16 2.3 times. With two idle ones it was 0.8 and 0.95 times.
	alone = 12

	// endless is the time of a caller without a deadline.
	endless = time.Hour
)

var (
	errQueueFull = errors.New("too many calls wait for the server")
	errOverload  = errors.New("more calls wait than the server serves in the time that this one has")
)

// Config says how a [Group] reaches its server.
type Config struct {
	Share   int                // commands of a batch, at most
	Batches int                // that are out at once, at most: as many as there are connections
	Queue   int                // commands that wait, at most: that claim, and that end a lease
	Send    func(*Batch) error // blocks until the round trip is over
	Outer   bool               // Send does not call Transmit of its commands
	Direct  *atomic.Bool       // Send returns in time, so a caller may wait in it
}

// Group is the way to one server: group commit. Up to about a dozen commands in
// flight, each goes its own way. When there are more, they wait in a queue, and
// what is queued is sent as one pipeline when an earlier one has been answered.
//
// The queue is what is known for certain. A command that has not left it was not
// applied, and is taken back for nothing; one that has left it is unknown until
// it was answered, and if its caller does not wait for that, the Flight of the
// call learns of the end exactly once. So a server that is slower than its callers
// finds few commands on the wire ([window]), and the rest is refused as not
// applied: when it arrives, if the rate of the server cannot serve it in its
// time.
//
// What ends a lease goes before what claims one: else the callers that have been
// served wait behind those that have not.
type Group struct {
	config Config
	alone  int       // commands
	overs  sync.Pool // of channels that callers wait on: empty, of no caller

	mu      sync.Mutex
	ends    queue // what does not yield
	claims  queue // what does
	out     int   // commands that have left the queue and are not answered
	batches []*Batch
	window  window
	gauge   admission.Gauge
	ticking bool
	looked  time.Time // through the queues
}

// queue has commands in the order in which they came. One that has left out of its
// turn is there until the next look through it.
type queue struct {
	all  []*Command
	head int // of all
	len  int // that wait
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

// New returns a group of its own for the server that c leads to.
func New(c Config) *Group {
	g := &Group{config: c, alone: min(alone, c.Batches), window: newWindow(c.Share, c.Batches)}
	if runtime.GOMAXPROCS(0) == 1 {
		g.alone = 1
	}
	g.overs.New = func() any { return make(chan struct{}, 1) }
	return g
}

// Do sends c and waits until it is answered, or ctx ends. The answer is nil if
// the server's was.
func (g *Group) Do(ctx context.Context, c *Command) (any, error) {
	gone := ctx.Done
	c.caller, c.queue = ctx, &g.ends
	if c.try, _ = ctx.(*send.Try); c.try != nil {
		c.caller, gone = c.try.Caller(), c.try.GivenUp // the group sees to the deadline
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

// wait waits until c is done, or its caller is gone.
func (g *Group) wait(ctx context.Context, c *Command, gone <-chan struct{}) {
	select {
	case <-c.over:
	case <-gone:
		if !g.leave(c, c.caller.Err(), send.InFlight(ctx)) {
			<-c.over // it was answered meanwhile
		}
	}
	g.overs.Put(c.over) // empty, and without a sender
}

// enqueue queues c, or says why it is refused. A batch that it returns is for the
// caller to send.
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
		return nil, g.refused("queue", errQueueFull, now)
	case c.Yields && g.late(c, now.Add(g.gauge.Wait(g.claims.len))):
		return nil, g.refused("overload", errOverload, now)
	case g.ends.len+g.claims.len == 0 && c.try != nil && g.config.Direct.Load() && g.few():
		own = c.alone.begin(now)
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

// refused is the error of a command that is not queued, or leaves the queue, because it
// would be too late. Behind a server that answers nothing its class is that of the cause.
func (g *Group) refused(class string, why error, now time.Time) error {
	if g.window.silent(now) {
		class = "silent"
	}
	return failure.Refused(class, why)
}

// Pending is how many commands are out, and how many wait for that.
func (g *Group) Pending() (out, queued int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out, g.ends.len + g.claims.len
}

// Drain waits until nothing is pending in any of the groups, or ctx ends.
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
	out, queued := g.Pending()
	return out+queued > 0
}
