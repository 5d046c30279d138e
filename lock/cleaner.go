package lock

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxOrphans = 1 << 16 // that are to be removed; the oldest is given up for one more
	maxRunning = 8       // tasks that talk to the store at once

	// tokenPause is for how long the cleaner waits when the retry budget is spent. It
	// gets a token in that time at the least.
	tokenPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// cleaner finishes in the background what the store did not answer: it removes
// entries of orphans, and completes releases and settles. It comes after the callers:
// every send takes a token of the retry budget. It has no goroutine while it has
// nothing to do.
type cleaner struct {
	core    *core
	most    int          // maxOrphans
	count   atomic.Int64 // of those that were not answered yet, to be read without the lock
	bytes   atomic.Int64 // of the receipts that wait to be settled; see maxPendingBytes
	dropped atomic.Int64

	mu      sync.Mutex
	due     taskHeap // clean-up
	ends    taskHeap // releases and settles, which come before it
	all     map[*task]struct{}
	orphans orphans
	running int
	hurried bool // Close waits: no long pauses
	closing bool // and the holders are done
	stopped bool
	empty   chan struct{} // not nil while Close waits
	timer   *time.Timer
}

// task is one thing that is repeated until it is done. Its next attempt follows after
// again, or if that is 0, after a pause that grows.
type task struct {
	attempt func(closing bool) (again time.Duration, done bool)
	giveUp  func()  // called if the task is forgotten before it is done; may be nil
	of      Cleanup // what an operator is shown of it, except for its Since, which is born
	born    time.Time
	next    time.Time
	pause   time.Duration
	index   int  // in its heap; -1 while it runs
	ends    bool // it is a release or a settle
	again   bool // it was asked for while it ran
	settled bool // it was answered, and is only repeated to be sure
	unsent  bool // its last attempt has sent nothing
}

func newCleaner(c *core) *cleaner {
	cl := &cleaner{core: c, most: maxOrphans, all: make(map[*task]struct{})}
	cl.timer = time.AfterFunc(time.Hour, cl.wake)
	cl.timer.Stop()
	return cl
}

// start runs t as soon as there is room and a token for it, and again until it is
// done. After Close it never does.
func (c *cleaner) start(t *task) {
	c.mu.Lock()
	started := c.startAfter(t, 0)
	c.mu.Unlock()
	if !started {
		t.forgotten()
		return
	}
	c.wake()
}

// startAfter is start for a task that waits first. c.mu is held.
func (c *cleaner) startAfter(t *task, wait time.Duration) (started bool) {
	if c.stopped {
		return false
	}
	t.born = time.Now()
	t.next = t.born.Add(wait)
	c.all[t] = struct{}{}
	c.count.Add(1)
	heap.Push(c.heapOf(t), t)
	return true
}

func (c *cleaner) heapOf(t *task) *taskHeap {
	if t.ends {
		return &c.ends
	}
	return &c.due
}

// first is the heap of what is to run next: an end that is due, or else what is due
// first. c.mu is held.
func (c *cleaner) first(now time.Time) *taskHeap {
	switch {
	case len(c.ends) == 0:
		return &c.due
	case len(c.due) == 0 || !c.ends[0].next.After(now) || c.ends[0].next.Before(c.due[0].next):
		return &c.ends
	default:
		return &c.due
	}
}

// kick runs t now, or once more if it is running.
func (c *cleaner) kick(t *task) {
	c.mu.Lock()
	if t.index < 0 {
		t.again = true
	} else if _, known := c.all[t]; known {
		t.next = time.Time{} // before all that is merely due
		heap.Fix(c.heapOf(t), t.index)
	}
	c.mu.Unlock()
	c.wake()
}

// wake starts what is due and paid for, and sets the timer for the rest.
func (c *cleaner) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for len(c.due)+len(c.ends) > 0 && c.running < maxRunning {
		due := c.first(now)
		t := (*due)[0]
		if wait := t.next.Sub(now); wait > 0 {
			c.timer.Reset(wait)
			return
		}
		if !c.hurried && !c.core.sender.Retries.Take() {
			c.timer.Reset(tokenPause)
			return
		}
		heap.Pop(due)
		c.running++
		go c.run(t, c.closing)
	}
}

func (c *cleaner) run(t *task, closing bool) {
	again, done := time.Duration(0), false
	defer func() { c.ran(t, again, done) }() // also if a hook of the store ends the goroutine
	again, done = t.attempt(closing)
}

// ran takes in how an attempt of t has ended.
func (c *cleaner) ran(t *task, again time.Duration, done bool) {
	c.mu.Lock()
	if t.unsent || (done || again > 0) && c.core.sender.Calls.Count() < c.running {
		c.core.sender.Retries.Give() // nothing was sent, or the store has answered, and no caller wants anything of it
	}
	c.running--
	stopped := c.stopped
	if done || stopped {
		c.forget(t)
	} else {
		if again > 0 && !t.settled {
			t.settled = true
			c.count.Add(-1)
		}
		t.postpone(again, c.hurried)
		heap.Push(c.heapOf(t), t)
	}
	c.mu.Unlock()
	if stopped && !done {
		t.forgotten()
	}
	c.wake()
}

// postpone sets when t is next due. The pause grows from 10 ms to a second, which is
// what a landing command may cost another process, and after a quarter of a minute is
// five.
func (t *task) postpone(again time.Duration, hurried bool) {
	t.pause = min(max(2*t.pause, 10*time.Millisecond), time.Second)
	if time.Since(t.born) > 15*time.Second {
		t.pause = longPause
	}
	wait := t.pause
	if again > 0 {
		wait, t.pause = again, 0
	}
	if hurried {
		wait = min(wait, 50*time.Millisecond)
	}
	t.next = time.Now().Add(wait)
	if t.again {
		t.again, t.next = false, time.Now()
	}
}

// hurry makes all tasks due, and keeps them from waiting for long, or for tokens.
func (c *cleaner) hurry() {
	c.mu.Lock()
	c.hurried = true
	now := time.Now()
	for _, h := range []*taskHeap{&c.due, &c.ends} {
		for _, t := range *h {
			t.next, t.pause = now, 0
		}
		heap.Init(h)
	}
	c.mu.Unlock()
	c.wake()
}

// drain ends the removal of orphans as soon as the store has answered one each.
func (c *cleaner) drain() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.hurry()
}

// wait returns how many tasks are left when there are none or ctx ends.
func (c *cleaner) wait(ctx context.Context) int {
	c.mu.Lock()
	if len(c.all) == 0 {
		c.mu.Unlock()
		return 0
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
		return 0
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.all)
	}
}

// stop forgets all tasks, those that run as soon as their attempt is over.
func (c *cleaner) stop() {
	c.mu.Lock()
	c.stopped = true
	c.timer.Stop()
	due := slices.Concat(c.due, c.ends)
	for _, t := range due {
		c.forget(t)
	}
	c.due, c.ends, c.orphans = nil, nil, orphans{}
	c.mu.Unlock()
	for _, t := range due {
		t.forgotten()
	}
}

func (t *task) forgotten() {
	if t.giveUp != nil {
		t.giveUp()
	}
}

// forget removes t, which is not in the heap. c.mu is held.
func (c *cleaner) forget(t *task) {
	delete(c.all, t)
	if !t.settled {
		c.count.Add(-1)
	}
	if len(c.all) == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// taskHeap orders tasks by when they are next due.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *taskHeap) Push(x any) {
	t := x.(*task) //nolint:errcheck // only tasks are pushed
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
