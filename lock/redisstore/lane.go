package redisstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/carry"
)

const (
	// shareFrom is from how many commands in flight on sharing is quicker than a
	// connection for each. Below it, a command that waits for others is late.
	shareFrom = 12

	// steadyWorkers is how many batches are on their way at once while none of
	// them stalls: some are written or read while another is executed.
	steadyWorkers = 4

	// perWorker is how many commands must wait for another of them to be wanted:
	// fewer are better off in one round trip than in two that get in each other's
	// way.
	perWorker = 8

	// calmWorkers bounds them when some take long: all of them may, and new
	// connections do not make a slow server faster.
	calmWorkers = 12

	// maxWorkers bounds them when the connections of some stall; so does the
	// client's pool.
	maxWorkers = 32

	// maxBatch is how many commands share a round trip, and so a fate.
	maxBatch = 32

	// maxWary is the same while connections stall, and for a command that has
	// stalled before: the fewer share a connection, the fewer it keeps waiting.
	maxWary = 8

	// maxQueued bounds the callers that wait for their round trip to begin.
	maxQueued = 1 << 16

	// maxShared is the size of a command, in bytes, above which it goes alone:
	// those behind it would wait for a receipt of a megabyte.
	maxShared = 16 << 10

	// patience is how long a batch may take until another worker does the work
	// of the one that waits for it.
	patience = 2 * time.Millisecond

	// A batch is not waited for any more after so long, if that is so many times as
	// long as usual, and if so many that began after it were answered: then its
	// connection stalls, and not the server.
	hopelessAfter   = 6 * time.Millisecond
	hopelessSlack   = 3
	hopelessBatches = 6
)

var errQueueFull = errors.New("too many calls wait for the server")

// lane is the way to one server. While few commands are in flight each goes its
// own way, over a connection of its own. When there are more, they wait in a
// queue, and a few workers take what is there and send it as one pipeline.
//
// A worker ends when the queue is empty. One whose batch stalls is replaced
// meanwhile, so that a connection that is dead costs the members of one batch
// one try, and others the patience at most. If it is the connection that stalls,
// and not the server, that try is over as soon as it is clear that it does.
type lane struct {
	server *redis.Client // what batches go through
	alone  sender        // what commands that share nothing go through
	from   int64         // shareFrom, unless a test wants otherwise
	most   int           // workers
	failed func(error)   // is told of batches that failed
	flying atomic.Int64  // commands, on either way

	mu      sync.Mutex
	queue   queue
	workers int
	running []*batch
	stalled int           // of running
	lost    int           // of running: those that are hopeless
	usual   time.Duration // that one takes: half of them take longer, or about
	watched bool
	watch   *time.Timer   // looks for batches that stall, while there are any
	closed  bool          // nothing is shared any more
	idle    chan struct{} // not nil while close waits; closed when there is no worker
}

func newLane(server *redis.Client, alone sender, from int64, failed func(error)) *lane {
	l := &lane{server: server, alone: alone, from: from, most: connections(server.Options()), failed: failed}
	l.watch = time.AfterFunc(time.Hour, l.look)
	l.watch.Stop()
	return l
}

// connections is how many workers have a connection to themselves. What waits for
// one stalls, too.
func connections(o *redis.Options) int {
	pool := cmp.Or(o.PipelinePoolSize, redis.DefaultPipelinePoolSize)
	if pool < 0 {
		pool = o.PoolSize
	}
	return min(pool, maxWorkers)
}

// Process sends cmd, alone or in company.
func (l *lane) Process(ctx context.Context, cmd redis.Cmder) error {
	n := l.flying.Add(1)
	defer l.flying.Add(-1)
	c, ok := cmd.(*command)
	if !ok || n < l.from || c.size() > maxShared || stalls(ctx) > 1 {
		return l.alone.Process(ctx, cmd)
	}
	s := c.takeSeat(ctx)
	if err := l.enqueue(c); err != nil {
		c.standUp(s)
		if errors.Is(err, redis.ErrClosed) {
			return l.alone.Process(ctx, cmd)
		}
		return err
	}
	if s.done == nil {
		<-s.told
		return c.accept(s)
	}
	select {
	case <-s.told:
		return c.accept(s)
	case <-s.done:
	}
	gone := unwanted(ctx)
	if l.dequeue(c, s) {
		c.standUp(s)
		return gone
	}
	return c.leave(s, gone)
}

// stalls is how often the call of ctx has stalled before. One goes first the next
// time. One that stalls even then may well be the reason for it, and shares
// nothing any more.
func stalls(ctx context.Context) int {
	if try, ok := ctx.(*carry.Try); ok {
		return try.Stalls
	}
	return 0
}

func (l *lane) enqueue(c *command) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return redis.ErrClosed
	case l.queue.len == maxQueued:
		return errQueueFull
	}
	if stalls(c.ctx) > 0 {
		l.queue.pushFirst(c)
	} else {
		l.queue.push(c)
	}
	l.staff()
	return nil
}

// dequeue takes c out of the queue, if it is not in a batch.
func (l *lane) dequeue(c *command, s *seat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.queued {
		l.queue.remove(c)
		return true
	}
	return s.dropped
}

// staff starts a worker if one is wanted. l.mu is held.
func (l *lane) staff() {
	if l.queue.len > 0 && l.workers-l.stalled < l.wanted() && l.workers < min(l.most, calmWorkers+l.lost) {
		l.workers++
		go l.work()
	}
}

// wanted is how many workers there should be whose batches do not stall.
func (l *lane) wanted() int { return min(1+l.queue.len/perWorker, steadyWorkers) }

func (l *lane) work() {
	b := new(batch)
	defer l.quit(b) // also if a hook ends the goroutine
	for l.take(b) {
		if err := b.run(l.server); err != nil {
			l.failed(err)
		} else {
			l.learn(b)
		}
	}
}

// take fills b with what is queued. It reports false if the worker is not wanted
// any more.
func (l *lane) take(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strike(b)
	if l.workers-l.stalled > l.wanted() {
		return false
	}
	now := time.Now()
	room := maxBatch
	if l.lost > 0 {
		room = maxWary
	}
	for len(b.members) < room {
		c := l.queue.pop()
		if c == nil {
			break
		}
		if stalls(c.ctx) > 0 {
			room = maxWary
		}
		b.add(c, now)
	}
	if len(b.members) == 0 {
		return false
	}
	b.began, b.overtaken = now, 0
	l.running = append(l.running, b)
	if !l.watched {
		l.watched = true
		l.watch.Reset(patience)
	}
	return true
}

// strike takes b, which is over, off the list of those that run. l.mu is held.
func (l *lane) strike(b *batch) {
	for i, other := range l.running {
		if other == b {
			last := len(l.running) - 1
			l.running[i], l.running[last] = l.running[last], nil
			l.running = l.running[:last]
			break
		}
	}
	if b.stalled {
		b.stalled = false
		l.stalled--
	}
	if b.hopeless {
		b.hopeless = false
		l.lost--
	}
}

func (l *lane) quit(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strike(b)
	l.workers--
	l.staff()
	if l.workers == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// learn takes in that b was answered. What is usual is followed in steps, so that
// the few that stall, for however long, hardly change it.
func (l *lane) learn(b *batch) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	step := l.usual/16 + 10*time.Microsecond
	if now.Sub(b.began) < l.usual {
		step = -step
	}
	l.usual += step
	hopeless := now.Add(-max(hopelessAfter, hopelessSlack*l.usual))
	for _, other := range l.running {
		if !other.began.Before(b.began) {
			continue
		}
		other.overtaken++
		if other.overtaken >= hopelessBatches && other.began.Before(hopeless) {
			if !other.hopeless {
				other.hopeless = true
				l.lost++
			}
			other.evict(now, true)
		}
	}
}

// look sees to it that those that are queued do not wait for a batch that
// stalls, and that nobody waits for longer than is of use.
func (l *lane) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	limit := now.Add(-patience)
	for _, b := range l.running {
		if !b.began.Before(limit) {
			continue
		}
		if !b.stalled {
			b.stalled = true
			l.stalled++
		}
		b.evict(now, false)
	}
	for _, c := range l.queue.expired(now) {
		c.expire()
	}
	for range steadyWorkers {
		l.staff()
	}
	if l.watched = len(l.running) > 0 || l.queue.len > 0; l.watched {
		l.watch.Reset(patience)
	}
}

// close makes commands go their own way from here on, and waits for the workers
// until ctx ends.
func (l *lane) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	if l.workers > 0 && l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
