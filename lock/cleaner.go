package lock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	maxOrphans = 1 << 16 // that are to be removed; the oldest is given up for one more
	maxRunning = 8       // tasks of one kind that talk to the store at once
	maxAsked   = 256     // those that callers wait for

	// tokenPause is for how long the cleaner waits when the retry budget is spent. It
	// gets a token in that time at the least.
	tokenPause = 100 * time.Millisecond
)

// cleaner finishes in the background what the store did not answer: it completes
// releases and settles, and removes entries of orphans. It comes after the callers: before
// Close, every attempt takes a token of the retry budget. It has no goroutine while it has
// nothing to do.
type cleaner struct {
	core    *core
	count   atomic.Int64 // of those that were not answered yet, to be read without the lock
	bytes   atomic.Int64 // of the receipts that wait to be settled; see maxPendingBytes
	dropped atomic.Int64
	tasks   send.Counter // all of them

	mu       sync.Mutex
	ends     taskQueue // releases and settles, which come before
	removals taskQueue
	all      map[*task]struct{}
	orphans  orphans
	stage    stage
}

// stage is how far the Locker's Close has come.
type stage uint8

const (
	working   stage = iota
	expedited       // Close waits for the holders: no long pauses, and no waiting for tokens
	draining        // they are done: an orphan is removed once
	stopped         // nothing new is begun
)

func newCleaner(c *core) *cleaner {
	cl := &cleaner{core: c, all: make(map[*task]struct{})}
	cl.ends.Queue, cl.removals.Queue = clock.NewQueue[*task](cl.wake), clock.NewQueue[*task](cl.wake)
	return cl
}

// start runs t as soon as there is room and a token for it, and again until it is
// done. After Close it never does.
func (c *cleaner) start(t *task) {
	c.mu.Lock()
	t.in.answered = 0 // the call that it repeats was not
	started := c.enqueue(t, 0)
	c.mu.Unlock()
	if !started {
		t.forgotten()
		return
	}
	c.wake()
}

// enqueue is start for a task that waits first. c.mu is held.
func (c *cleaner) enqueue(t *task, wait time.Duration) (started bool) {
	if c.stage == stopped {
		return false
	}
	t.born = time.Now()
	c.all[t] = struct{}{}
	c.tasks.Enter()
	c.count.Add(1)
	t.in.Put(t, clock.Now().Add(wait))
	return true
}

// kick runs t now, or once more if it is running. A caller may wait for it.
func (c *cleaner) kick(t *task, awaited bool) {
	c.mu.Lock()
	t.awaited = t.awaited || awaited
	if !t.Queued() {
		t.kicked = true
	} else if _, known := c.all[t]; known {
		t.in.Put(t, min(clock.Now(), t.in.First())-1) // before all that is merely due
	}
	c.mu.Unlock()
	c.wake()
}

// wake starts what is due and paid for, and sets the timer for the rest.
func (c *cleaner) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := clock.Now()
	for _, q := range c.queues() {
		q.Fired()
		for q.running < q.room() && at >= q.First() {
			paid := c.stage == working
			if paid && !c.core.sender.Retries.Take() {
				q.Arm(at.Add(tokenPause))
				return
			}
			t := q.Pop()
			t.paid, t.awaited = paid, false
			q.running++
			go c.run(t, c.stage == draining)
		}
		if q.running < q.room() {
			q.Arm(q.First())
		}
	}
}

// queues are in the order in which they are looked at.
func (c *cleaner) queues() [2]*taskQueue { return [...]*taskQueue{&c.ends, &c.removals} }

func (c *cleaner) run(t *task, closing bool) {
	var p progress
	defer func() { c.ran(t, p) }() // also if a hook of the store ends the goroutine
	p = t.attempt(closing)
}

// ran takes in how an attempt of t has ended.
func (c *cleaner) ran(t *task, p progress) {
	c.mu.Lock()
	answered := p.done && !p.unanswered || p.again > 0
	if t.paid && (p.unsent || answered && c.core.sender.Calls.Count() < c.ends.running+c.removals.running) {
		c.core.sender.Retries.Give() // nothing was sent, or the store has answered, and no caller wants anything of it
	}
	t.in.running--
	t.in.learn(p, answered)
	over := p.done || c.stage == stopped
	if over {
		c.forget(t)
	} else {
		if answered && !t.settled {
			t.settled = true
			c.count.Add(-1)
		}
		t.in.Put(t, clock.Now().Add(t.postpone(p.again, c.stage)))
	}
	c.mu.Unlock()
	if over && !p.done {
		t.forgotten()
	}
	c.wake()
}

// advance goes on to a later stage, for which all tasks are due.
func (c *cleaner) advance(to stage) {
	c.mu.Lock()
	c.stage = max(c.stage, to)
	at := clock.Now()
	for t := range c.all {
		t.pause = 0
		if t.Queued() {
			t.in.Put(t, at)
		}
	}
	c.mu.Unlock()
	c.wake()
}

// stop forgets all tasks, those that run as soon as their attempt is over.
func (c *cleaner) stop() {
	c.mu.Lock()
	c.stage = stopped
	waiting := slices.AppendSeq(slices.Collect(c.ends.All()), c.removals.All())
	for _, t := range waiting {
		c.forget(t)
	}
	c.ends.Clear()
	c.removals.Clear()
	c.orphans = orphans{}
	c.mu.Unlock()
	for _, t := range waiting {
		t.forgotten()
	}
}

// forget removes t, which is in no queue. c.mu is held.
func (c *cleaner) forget(t *task) {
	delete(c.all, t)
	if !t.settled {
		c.count.Add(-1)
	}
	c.tasks.Leave()
}
