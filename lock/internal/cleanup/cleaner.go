// Package cleanup completes in the background the calls that a store did not answer. It
// repeats releases and settles, and removes the entries of orphans.
package cleanup

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	maxOrphans = 1 << 16 // under removal; above it, the oldest removal is given up
	maxRunning = 8       // tasks of one kind that call the store at once
	maxAsked   = 256     // the same bound, while callers wait for the next task

	// tokenPause is the pause of the cleaner when the retry budget is spent. The budget gains at
	// least one token in that time.
	tokenPause = 100 * time.Millisecond
)

// Cleaner runs tasks until the store has answered them. Callers come first: before
// Close, every attempt takes a token of the retry budget. A Cleaner without tasks has no
// goroutine.
type Cleaner struct {
	sender  *send.Sender
	maxLag  time.Duration // the longest time after the return of a call in which its command may still take effect
	longest atomic.Int64  // the longest lease that was announced
	count   atomic.Int64  // unanswered tasks, to be read without the lock
	dropped atomic.Int64
	tasks   send.Counter // answered or not

	mu       sync.Mutex
	ends     taskQueue // releases and settles, which come first
	removals taskQueue
	all      map[*Task]struct{}
	orphans  orphans
	stage    Stage
}

// Stage is the progress of the Locker's Close.
type Stage uint8

const (
	// Working is the stage before Close.
	Working Stage = iota
	// Expedited says that Close waits for the holders: pauses are short, and attempts take
	// no tokens.
	Expedited
	// Draining says that the holders are done: an orphan is removed once.
	Draining

	stopped // no attempt begins
)

// New returns a Cleaner without tasks. maxLag is the longest time after the return of a call in
// which its command may still take effect.
func New(sender *send.Sender, maxLag time.Duration) *Cleaner {
	c := &Cleaner{sender: sender, maxLag: maxLag, all: make(map[*Task]struct{})}
	c.ends.Queue, c.removals.Queue = clock.NewQueue[*Task](c.wake), clock.NewQueue[*Task](c.wake)
	return c
}

// AnnounceLease notes that claims ask for leases of this length.
func (c *Cleaner) AnnounceLease(lease time.Duration) {
	for {
		longest := c.longest.Load()
		if int64(lease) <= longest || c.longest.CompareAndSwap(longest, int64(lease)) {
			return
		}
	}
}

func (c *Cleaner) longestLease() time.Duration { return time.Duration(c.longest.Load()) }

// Count returns the number of tasks that the store has not answered.
func (c *Cleaner) Count() int { return int(c.count.Load()) }

// Dropped returns the number of removals that were given up for newer ones.
func (c *Cleaner) Dropped() int64 { return c.dropped.Load() }

// Tasks counts all tasks, for Close to wait for.
func (c *Cleaner) Tasks() *send.Counter { return &c.tasks }

// Repeat runs t as soon as there is room and a token for it, and again until it is
// done. After Stop, it gives t up instead.
func (c *Cleaner) Repeat(t *Task) {
	c.mu.Lock()
	t.in = &c.ends
	t.in.answered = 0 // the first call of t had no answer
	started := c.enqueue(t, 0)
	c.mu.Unlock()
	if !started {
		t.giveUp()
		return
	}
	c.wake()
}

// enqueue queues t, to run after wait. c.mu is held.
func (c *Cleaner) enqueue(t *Task, wait time.Duration) (started bool) {
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

// Kick runs t now for a caller that waits, or once more if t is running.
func (c *Cleaner) Kick(t *Task) { c.kick(t, true) }

func (c *Cleaner) kick(t *Task, awaited bool) {
	c.mu.Lock()
	t.awaited = t.awaited || awaited
	if !t.Queued() {
		t.kicked = true
	} else if _, known := c.all[t]; known {
		t.in.Put(t, min(clock.Now(), t.in.First())-1) // before all tasks that are merely due
	}
	c.mu.Unlock()
	c.wake()
}

// wake starts the tasks that are due and paid for, and sets the timer for the others.
func (c *Cleaner) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := clock.Now()
	for _, q := range c.queues() {
		q.Fired()
		for q.running < q.room() && at >= q.First() {
			paid := c.stage == Working
			if paid && !c.sender.Retries.Take() {
				q.Arm(at.Add(tokenPause))
				return
			}
			t := q.Pop()
			t.paid, t.awaited = paid, false
			q.running++
			go func(closing bool) { c.ran(t, t.Attempt(closing)) }(c.stage == Draining)
		}
		if q.running < q.room() {
			q.Arm(q.First())
		}
	}
}

// queues returns the queues in the order of their precedence.
func (c *Cleaner) queues() [2]*taskQueue { return [...]*taskQueue{&c.ends, &c.removals} }

// ran notes the end of an attempt of t.
func (c *Cleaner) ran(t *Task, p Progress) {
	c.mu.Lock()
	answered := p.Done && !p.Unanswered || p.Again > 0
	if t.paid && (p.Unsent || answered && c.sender.Calls.Count() < c.ends.running+c.removals.running) {
		c.sender.Retries.Give() // nothing was sent, or the store has answered and no caller needs it
	}
	t.in.running--
	t.in.noteAttempt(p, answered)
	over := p.Done || c.stage == stopped
	if over {
		c.forget(t)
	} else {
		if answered && !t.confirming {
			t.confirming = true
			c.count.Add(-1)
		}
		t.in.Put(t, clock.Now().Add(t.postpone(p.Again, c.stage)))
	}
	c.mu.Unlock()
	if over && !p.Done {
		t.giveUp()
	}
	c.wake()
}

// Advance goes on to a later stage, and makes all tasks due.
func (c *Cleaner) Advance(to Stage) {
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

// Stop forgets all tasks. A task that is running is forgotten after its attempt.
func (c *Cleaner) Stop() {
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
		t.giveUp()
	}
}

// forget removes t, which is in no queue. c.mu is held.
func (c *Cleaner) forget(t *Task) {
	delete(c.all, t)
	if !t.confirming {
		c.count.Add(-1)
	}
	c.tasks.Leave()
}

// Pending is a task that the store has not answered.
type Pending struct {
	Subject
	Since time.Time
}

// List returns the tasks that the store has not answered, in no order.
func (c *Cleaner) List() []Pending {
	var all []Pending
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.all {
		if !t.confirming {
			all = append(all, Pending{t.Subject, t.born})
		}
	}
	return all
}
