package redisstore

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
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

	// maxAgain is the same for a command that has stalled before: the fewer share a
	// connection, the fewer it keeps waiting.
	maxAgain = 8

	// wary is what steadyWorkers is multiplied with, and maxBatch divided by, while
	// connections stall: as much is on its way, and fewer wait for each connection.
	wary = 2
)

// connections is how many workers have a connection to themselves. What waits for
// one stalls, too.
func connections(o *redis.Options) int {
	pool := cmp.Or(o.PipelinePoolSize, redis.DefaultPipelinePoolSize)
	if pool < 0 {
		pool = o.PoolSize
	}
	return min(pool, maxWorkers)
}

// staff starts a worker if one is wanted. l.mu is held.
func (l *lane) staff() {
	if l.queue.len > 0 && l.workers-l.stalled < l.wanted() && l.workers < min(l.most, calmWorkers+l.lost) {
		l.workers++
		go l.work()
	}
}

// wanted is how many workers there should be whose batches do not stall.
func (l *lane) wanted() int {
	most := steadyWorkers
	if l.isWary() {
		most *= wary
	}
	return min(1+l.queue.len/perWorker, most)
}

// isWary reports whether connections stall, and there are enough of the others
// for smaller batches.
func (l *lane) isWary() bool { return l.lost > 0 && l.most-l.lost >= wary*steadyWorkers }

// room is how many commands a batch may have.
func (l *lane) room() int {
	if l.isWary() {
		return maxBatch / wary
	}
	return maxBatch
}

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
	for room := l.room(); len(b.members) < room; {
		c := l.queue.pop()
		if c == nil {
			break
		}
		if stalls(c.ctx) > 0 {
			room = maxAgain
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
