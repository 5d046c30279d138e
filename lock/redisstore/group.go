package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/admission"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	// alone is up to how many commands in flight each has a round trip of its
	// own. Beyond it, sharing one is quicker than a connection for each.
	alone = 12

	// maxQueued bounds the callers that wait for their round trip to begin.
	maxQueued = 1 << 16

	// maxHanging bounds the goroutines of batches that hang, in a hook for one.
	maxHanging = 256

	// tick is how often a group with work looks for callers whose time is over,
	// and for round trips that stall. It is by how much they can be late.
	tick = 5 * time.Millisecond

	// perQueued is how much later they can be for each that waits: 10,000 are not
	// looked through every tick.
	perQueued = 2 * time.Microsecond

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

// dispatch sends what is queued, as far as the window allows.
func (g *group) dispatch(now time.Time) {
	for b := g.next(now); b != nil; b = g.next(now) {
		go g.work(b)
	}
	if !g.ticking && len(g.batches)+g.ends.len+g.claims.len > 0 {
		g.ticking = true
		time.AfterFunc(tick, g.tick)
	}
}

// late reports whether c would not be answered in its time if it left the queue
// then. Round trips differ, and most in the state in which there is a queue: what
// has to wait is sure of twice what they usually take. What still has half of its
// time is never late: something has to find out how long an answer takes now.
func (g *group) late(c *command, then time.Time) bool {
	needed := g.window.usual + min(g.window.usual, then.Sub(c.arrived))
	return then.Add(min(needed, c.deadline.Sub(c.arrived)/2)).After(c.deadline)
}

// few reports whether so few commands are out that the next one goes its own way.
func (g *group) few() bool { return g.out < min(g.alone, g.window.size) }

// next returns the batch that is to be sent now, nil if there is none. What is too
// late for an answer is not sent.
func (g *group) next(now time.Time) *batch {
	waiting := g.ends.len + g.claims.len
	if waiting == 0 || !g.few() && !g.window.room(g.running(now), waiting) {
		return nil
	}
	b := new(batch).begin(now)
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
			c.finish(nil, notSent(context.DeadlineExceeded))
		case c.yields && g.late(c, now):
			c.finish(nil, notApplied("overload", errOverload))
		default:
			b.limited = b.limited || c.arrived.Before(now)
			if b.add(c); large {
				most = 0
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

func (g *group) depart(b *batch) {
	g.out += len(b.members)
	g.batches = append(g.batches, b)
}

// running is how many batches are out that the next one has to wait for. One whose
// time is over no longer has a caller, whatever it hangs in. One that stalls has taken
// a connection, and no more than that.
func (g *group) running(now time.Time) int {
	if len(g.batches) >= maxHanging {
		return g.most
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
	case n+stalled >= g.most:
		return g.most
	case n == 1 && overdue == 1: // one more finds out whether it is the server, or a connection
		return 0
	}
	return n
}

// leave is for a caller that waits no longer, and for one that is to wait no
// longer. flight learns what becomes of c. It reports false if c is done.
func (g *group) leave(c *command, why error, flight *send.Flight) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.state {
	case queued:
		c.queue.len--
		g.gauge.Waiting(time.Now(), g.claims.len > 0)
		c.state, c.err = done, notSent(why)
	case sent:
		c.part(why, flight)
	case left, done:
		return false
	}
	return true
}

// work sends b, and what it finds queued when b was answered.
func (g *group) work(b *batch) {
	for b != nil {
		b = g.round(b)
	}
}

// round sends b, if there is one, and finishes its members. It returns the batch
// that is to be sent next, nil if there is none.
func (g *group) round(b *batch) (next *batch) {
	if b == nil {
		return nil
	}
	err, returned := errUnsettled, false
	defer func() { // also if a hook of the client panics, or ends the goroutine
		if p := recover(); p != nil {
			err = hookPanic(p)
		}
		if next = g.answered(b, err); next != nil && !returned {
			go g.work(next) // this goroutine may be at its end
			next = nil
		}
	}()
	if b.outer = g.outer; b.outer {
		err = b.transmit(func() error { return g.send(b) })
	} else {
		err = g.send(b)
	}
	returned = true
	return nil
}

// answered finishes the members of b, which was over with failure.
func (g *group) answered(b *batch, failure error) (next *batch) {
	sends := b.close()
	g.mu.Lock()
	now := time.Now()
	served, claims := 0, 0
	for _, m := range b.members {
		c := m.(*command) //nolint:errcheck,forcetypeassert // nothing else is added
		answer, err, replied := b.outcome(c, sends, failure)
		if c.how = send.Lost; replied {
			c.how = send.Answered
			served++
			if c.yields {
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
	if served > 0 {
		g.window.learn(b, now)
	}
	g.out -= len(b.members)
	i := slices.Index(g.batches, b)
	g.batches = slices.Delete(g.batches, i, i+1)
	next = g.next(now)
	g.mu.Unlock()
	for _, m := range b.members {
		if c := m.(*command); c.state == left { //nolint:errcheck,forcetypeassert // as above
			c.flight.Arrive(c.how)
		}
	}
	return next
}

// tick ends the wait of callers whose time is over, or that rather send again, and
// sends what may be sent because something stalls.
func (g *group) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, b := range g.batches {
		if !now.Before(b.until) {
			b.end()
		}
		if b.direct {
			continue // its caller waits for the client, which obeys that end
		}
		for _, m := range b.members {
			c := m.(*command) //nolint:errcheck,forcetypeassert // nothing else is added
			if c.state == sent && c.try != nil && (!now.Before(c.deadline) || c.try.GiveUp(now.Sub(b.began))) {
				c.part(send.ErrGivenUp, send.InFlight(c.try))
				c.over <- struct{}{}
			}
		}
	}
	if now.Sub(g.looked) >= time.Duration(g.ends.len+g.claims.len)*perQueued {
		g.looked = now
		for _, q := range []*queue{&g.ends, &g.claims} {
			q.head, q.all = 0, slices.DeleteFunc(q.all, func(c *command) bool {
				if c.state == queued && !now.Before(c.deadline) {
					q.len--
					c.finish(nil, notSent(context.DeadlineExceeded))
				}
				return c.state != queued
			})
		}
		g.gauge.Waiting(now, g.claims.len > 0)
	}
	g.ticking = false
	g.dispatch(now)
}

func (g *group) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.batches) > 0
}
