package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/admission"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	// alone is up to how many commands in flight each has a round trip of its
	// own. Beyond it, sharing one is quicker than a connection for each.
	alone = 12

	// maxQueued bounds the callers that wait for their round trip to begin.
	maxQueued = 1 << 16

	// endless is the time of a caller without a deadline.
	endless = time.Hour
)

var (
	errQueueFull = errors.New("too many calls wait for the server")
	errOverload  = errors.New("more calls wait than the server serves in the time that this one has")
)

// group is the way to one server: group commit. Up to about a dozen commands in
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
type group struct {
	send   func(b *batch) error // blocks until the round trip is over
	outer  bool                 // send does not call transmit
	most   int                  // batches, as many as there are connections
	alone  int                  // commands
	direct *atomic.Bool         // send returns in time, so a caller may wait in it
	clock  clock                // the server's
	overs  sync.Pool            // of channels that callers wait on

	mu      sync.Mutex
	ends    queue // what does not yield
	claims  queue // what does
	out     int   // commands that have left the queue and are not answered
	batches []*batch
	window  window
	gauge   admission.Gauge
	ticking bool
	looked  time.Time // through the queues
}

// queue has commands in the order in which they came. One that has left out of its
// turn is there until the next look through it.
type queue struct {
	all  []*command
	head int // of all
	len  int // that wait
}

func (q *queue) first() *command {
	for ; q.head < len(q.all); q.head++ {
		if q.all[q.head].state == queued {
			return q.all[q.head]
		}
	}
	clear(q.all)
	q.all, q.head = q.all[:0], 0
	return nil
}

// newGroup returns a group whose batches have at most share commands.
func newGroup(share, most int, outer bool, direct *atomic.Bool, way func(b *batch) error) *group {
	g := &group{send: way, outer: outer, most: most, alone: min(alone, most), direct: direct, window: newWindow(share, most)}
	g.overs.New = func() any { return make(chan struct{}, 1) }
	g.clock.base = time.Now()
	return g
}

// do sends c and waits until it is answered, or ctx ends. The answer is nil if
// the server's was.
func (g *group) do(ctx context.Context, c *command) (any, error) {
	gone := ctx.Done
	c.caller, c.queue = ctx, &g.ends
	if c.try, _ = ctx.(*send.Try); c.try != nil {
		c.caller, c.yields = c.try.Caller(), c.yields || c.try.Cleaning()
		gone = c.try.GivenUp // the group sees to the deadline
	}
	if c.yields {
		c.queue = &g.claims
	}
	select {
	case <-gone():
		return nil, notSent(c.caller.Err())
	default:
	}
	c.over = g.overs.Get().(chan struct{}) //nolint:errcheck,forcetypeassert // nothing else is in it
	defer g.overs.Put(c.over)
	own, err := g.enqueue(ctx, c)
	if err != nil {
		return nil, err
	}
	if next := g.round(own); next != nil {
		go g.work(next)
	}
	select {
	case <-c.over:
	case <-gone():
		if !g.leave(c, c.caller.Err(), send.InFlight(ctx)) {
			<-c.over // it was answered meanwhile
		}
	}
	return c.answer, c.err
}

// enqueue queues c, or says why it is refused. A batch that it returns is for the
// caller to send.
func (g *group) enqueue(ctx context.Context, c *command) (own *batch, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var bounded bool
	if c.deadline, bounded = ctx.Deadline(); !bounded {
		c.deadline = now.Add(endless)
	}
	c.arrived = now
	waiting := g.ends.len + g.claims.len
	switch {
	case !now.Before(c.deadline):
		return nil, notSent(context.DeadlineExceeded)
	case waiting == maxQueued:
		return nil, notApplied("queue", errQueueFull)
	case c.yields && g.late(c, now.Add(g.gauge.Wait(g.claims.len))):
		return nil, notApplied("overload", errOverload)
	case waiting == 0 && c.try != nil && g.direct.Load() && g.few():
		own = c.alone.begin(now)
		own.add(c)
		own.direct, own.until = true, c.try.Until()
		g.depart(own)
	default:
		c.queue.all = append(c.queue.all, c)
		c.queue.len++
		g.gauge.Waiting(now, g.claims.len > 0)
	}
	g.dispatch(now)
	return own, nil
}

func (g *group) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.batches) > 0
}
