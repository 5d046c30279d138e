package redisstore

import (
	"context"
	"errors"
	"slices"
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

	// maxHanging bounds the goroutines of batches that hang, in a hook for one.
	maxHanging = 256

	// tick is how often a group with work looks for callers whose time is over,
	// and for round trips that stall. It is by how much they can be late.
	tick = 5 * time.Millisecond
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
	ticker  *time.Timer
}

func newGroup(share, most int, direct *atomic.Bool, way func(b *batch) error) *group {
	g := &group{send: way, most: most, alone: min(alone, most), direct: direct, window: newWindow(share, most)}
	g.clock.base = time.Now()
	g.ticker = time.AfterFunc(time.Hour, g.tick)
	g.ticker.Stop()
	return g
}

// do sends c and waits until it is answered, or ctx ends. The answer is nil if
// the server's was.
func (g *group) do(ctx context.Context, c *command) (any, error) {
	gone := ctx.Done
	c.caller = ctx
	if c.try, _ = ctx.(*send.Try); c.try != nil {
		c.caller, c.yields = c.try.Caller(), c.yields || c.try.Cleaning()
		gone = c.try.GivenUp // the group sees to the deadline
	}
	select {
	case <-gone():
		return nil, notSent(c.caller.Err())
	default:
	}
	c.deadline, _ = ctx.Deadline()
	over, ok := g.overs.Get().(chan struct{})
	if !ok {
		over = make(chan struct{}, 1)
	}
	defer g.overs.Put(over)
	c.over = over
	own, err := g.enqueue(c)
	if err != nil {
		return nil, err
	}
	if own != nil {
		if next := g.round(own); next != nil {
			go g.work(next)
		}
	}
	select {
	case <-over:
	case <-gone():
		if !g.leave(c, send.InFlight(ctx)) {
			<-over // it was answered meanwhile
		}
	}
	return c.answer, c.err
}

// enqueue queues c, or says why it is refused. A batch that it returns is for the
// caller to send.
func (g *group) enqueue(c *command) (own *batch, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	waiting := g.ends.len + g.claims.len
	c.arrived = now
	switch {
	case c.overdue(now):
		return nil, notSent(context.DeadlineExceeded)
	case waiting == maxQueued:
		return nil, notApplied("queue", errQueueFull)
	case c.yields && g.claims.len > 0 && g.late(c, now.Add(g.gauge.Wait(g.claims.len))):
		return nil, notApplied("overload", errOverload)
	case waiting == 0 && g.direct.Load() && g.few() && c.try != nil:
		own = c.alone.begin(now)
		own.add(c)
		own.direct, own.until = true, c.try.Until()
		g.depart(own)
		return own, nil
	case c.yields:
		g.claims.push(c)
		g.gauge.Waiting(now, true)
	default:
		g.ends.push(c)
	}
	g.dispatch(now)
	g.startTicking()
	return nil, nil //nolint:nilnil // the caller is to send none
}

// dispatch sends what is queued, as far as the window allows.
func (g *group) dispatch(now time.Time) {
	for b := g.next(now); b != nil; b = g.next(now) {
		go g.work(b)
	}
}

// late reports whether c would not be answered in its time if it left the queue
// then. Round trips differ, and most in the state in which there is a queue: what
// has to wait is sure of twice what they usually take. What still has half of its
// time is never late: something has to find out how long an answer takes now.
func (g *group) late(c *command, then time.Time) bool {
	if c.deadline.IsZero() {
		return false
	}
	usual := g.window.usual
	needed := usual + min(usual, then.Sub(c.arrived))
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
		c := g.ends.first
		if c == nil {
			c = g.claims.first
		}
		if c == nil || len(b.members) > 0 && c.large() {
			break
		}
		g.take(c)
		switch {
		case c.overdue(now):
			c.finish(nil, notSent(context.DeadlineExceeded))
		case c.yields && g.late(c, now):
			c.finish(nil, notApplied("overload", errOverload))
		default:
			b.limited = b.limited || c.arrived.Before(now)
			if b.add(c); c.large() {
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
	g.startTicking()
}

// running is how many batches are out that the next one has to wait for. One whose
// time is over has no caller any more, whatever it hangs in. One that stalls has
// taken a connection, and no more than that.
func (g *group) running(now time.Time) int {
	if len(g.batches) >= maxHanging {
		return len(g.batches)
	}
	n, stalled := 0, 0
	for _, b := range g.batches {
		switch {
		case b.Err() != nil:
		case g.window.stalls(b, now):
			stalled++
		default:
			n++
		}
	}
	if n+stalled >= g.most {
		return g.most
	}
	return n
}

// take takes c out of the queue.
func (g *group) take(c *command) {
	if c.yields {
		g.claims.remove(c)
	} else {
		g.ends.remove(c)
	}
}

// leave is for a caller that waits no longer. It reports false if its command is
// done.
func (g *group) leave(c *command, flight *send.Flight) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.state {
	case queued:
		g.take(c)
		g.gauge.Waiting(time.Now(), g.claims.len > 0)
		c.state, c.err = done, notSent(c.caller.Err())
	case sent:
		c.part(c.caller.Err(), flight)
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

// round sends b and finishes its members. It returns the batch that is to be sent
// next, nil if there is none.
func (g *group) round(b *batch) (next *batch) {
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
	err = g.send(b)
	returned = true
	return nil
}

// landing is how a command has ended whose caller has left.
type landing struct {
	flight *send.Flight
	how    send.Outcome
}

// answered finishes the members of b, which was over with failure.
func (g *group) answered(b *batch, failure error) (next *batch) {
	b.end(context.Canceled)
	sends := b.close()
	var landed []landing
	g.mu.Lock()
	now := time.Now()
	served, claims := 0, 0
	for _, m := range b.members {
		c := m.(*command) //nolint:errcheck,forcetypeassert // nothing else is added
		answer, err, replied := b.outcome(c, sends, failure)
		if replied {
			served++
			if c.yields {
				claims++
			}
		}
		if c.state == sent {
			c.finish(answer, err)
		} else if flight := c.flight; flight != nil {
			landed = append(landed, landing{flight, ending(err, replied)})
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
	for _, l := range landed {
		l.flight.Arrive(l.how)
	}
	return next
}

// tick ends the wait of callers whose time is over, and sends what may be sent
// because something stalls.
func (g *group) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, b := range g.batches {
		b.expire(now)
	}
	for _, q := range []*queue{&g.ends, &g.claims} {
		for _, c := range q.expired(now) {
			c.finish(nil, notSent(context.DeadlineExceeded))
		}
	}
	g.gauge.Waiting(now, g.claims.len > 0)
	g.dispatch(now)
	g.ticking = false
	g.startTicking()
}

func (g *group) startTicking() {
	if !g.ticking && len(g.batches)+g.ends.len+g.claims.len > 0 {
		g.ticking = true
		g.ticker.Reset(tick)
	}
}

func (g *group) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.batches) > 0
}
