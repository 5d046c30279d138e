package lock

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxTasks   = 1 << 16 // beyond this, new claims are refused rather than left unswept
	maxRunning = 64      // tasks that talk to the store at once

	// maxPending is for how long a late reply is waited for before it is taken for
	// a late command.
	maxPending = time.Second
)

// reaper finishes in the background what the store did not answer: it removes
// entries of dead claims (sweep), and completes releases and settles. It has
// no goroutine while it has nothing to do.
type reaper struct {
	count   atomic.Int64 // of all, to be read without the lock
	bytes   atomic.Int64 // of the receipts that wait to be settled; see maxPendingBytes
	mu      sync.Mutex
	due     taskHeap
	all     map[*task]struct{}
	orphans map[string]*task // sweeps by token
	running int
	hurried bool // Close waits: no long pauses
	closing bool // and the holders are done
	stopped bool
	empty   chan struct{} // not nil while Close waits
	timer   *time.Timer
}

// task is one thing that is repeated until it is done.
type task struct {
	attempt func(closing bool) (done bool)
	giveUp  func()  // called if the task is forgotten before it is done; may be nil
	token   string  // of a sweep
	of      Cleanup // what an operator is told of it; but for its Since, which is born
	born    time.Time
	next    time.Time
	pause   time.Duration
	index   int  // in the heap; -1 while it runs
	again   bool // asked for while it ran
}

func newReaper() *reaper {
	r := &reaper{all: make(map[*task]struct{}), orphans: make(map[string]*task)}
	r.timer = time.AfterFunc(time.Hour, r.wake)
	r.timer.Stop()
	return r
}

// full reports whether more unanswered claims could not be kept track of.
func (r *reaper) full() bool { return r.count.Load() >= maxTasks }

// orphan reports whether token is of a claim of this process that ended
// without an answer, and is thus held by nobody.
func (r *reaper) orphan(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.orphans[token]
	return ok
}

// add sweeps for s until it is certain that nothing of it is left. A token that
// is swept for already is not added again.
func (r *reaper) add(s *sweep) { r.addLater(s, 0) }

// addWhenArrived is add for a token that nothing in the store bears now: if it may
// yet turn out that all sends of the claim were answered, that is waited for,
// since a late reply is no orphan. The token is known as dead meanwhile.
func (r *reaper) addWhenArrived(s *sweep) {
	if s.flight.pending() {
		r.addLater(s, maxPending)
	} else {
		r.add(s)
	}
}

func (r *reaper) addLater(s *sweep, wait time.Duration) {
	t := &task{attempt: s.attempt, token: s.token, of: Cleanup{Key: s.event.Key, Entry: s.key, Token: s.token, Kind: EventReaped}}
	r.mu.Lock()
	if _, known := r.orphans[s.token]; known || r.stopped {
		r.mu.Unlock()
		return
	}
	r.orphans[s.token] = t
	r.mu.Unlock()
	r.addTaskLater(t, wait)
	if wait > 0 {
		s.flight.whenArrived(func() { r.kick(t) })
	}
}

// addTask runs t as soon as there is room for it. After Close there is nobody
// to run it.
func (r *reaper) addTask(t *task) { r.addTaskLater(t, 0) }

func (r *reaper) addTaskLater(t *task, wait time.Duration) {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		t.forgotten()
		return
	}
	t.born = time.Now()
	t.next = t.born.Add(wait)
	r.all[t] = struct{}{}
	r.count.Add(1)
	heap.Push(&r.due, t)
	r.mu.Unlock()
	r.wake()
}

// kick runs t now, or once more if it is running.
func (r *reaper) kick(t *task) {
	r.mu.Lock()
	if t.index < 0 {
		t.again = true
	} else if _, known := r.all[t]; known {
		t.next = time.Time{} // before all that is merely due
		heap.Fix(&r.due, t.index)
	}
	r.mu.Unlock()
	r.wake()
}

// wake starts what is due and sets the timer for the rest.
func (r *reaper) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.due) > 0 && r.running < maxRunning {
		t := r.due[0]
		if wait := t.next.Sub(now); wait > 0 {
			r.timer.Reset(wait)
			return
		}
		heap.Pop(&r.due)
		r.running++
		go r.run(t, r.closing)
	}
}

func (r *reaper) run(t *task, closing bool) {
	done := false
	defer func() { r.ran(t, done) }() // also if a hook of the store's ends the goroutine
	done = t.attempt(closing)
}

// ran takes in how an attempt of t has ended.
func (r *reaper) ran(t *task, done bool) {
	r.mu.Lock()
	r.running--
	stopped := r.stopped
	if done || stopped {
		r.forget(t)
		if len(r.all) == 0 && r.empty != nil {
			close(r.empty)
			r.empty = nil
		}
	} else {
		t.postpone(r.hurried)
		heap.Push(&r.due, t)
	}
	r.mu.Unlock()
	if stopped && !done {
		t.forgotten()
	}
	r.wake()
}

// postpone doubles the pause from 10 ms to a second, which is what a landing
// command may cost another process, and after a quarter of a minute, when
// hardly anything lands any more, takes five.
func (t *task) postpone(hurried bool) {
	t.pause = min(max(2*t.pause, 10*time.Millisecond), time.Second)
	if time.Since(t.born) > 15*time.Second {
		t.pause = 5 * time.Second
	}
	if hurried {
		t.pause = min(t.pause, 50*time.Millisecond)
	}
	t.next = time.Now().Add(t.pause)
	if t.again {
		t.again, t.next = false, time.Now()
	}
}

// hurry makes all tasks due, and keeps them from waiting for long.
func (r *reaper) hurry() {
	r.mu.Lock()
	r.hurried = true
	now := time.Now()
	for _, t := range r.due {
		t.next, t.pause = now, 0
	}
	heap.Init(&r.due)
	r.mu.Unlock()
	r.wake()
}

// drain ends sweeps as soon as the store has answered them.
func (r *reaper) drain() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.hurry()
}

// wait returns how many tasks are left when there are none or ctx ends.
func (r *reaper) wait(ctx context.Context) int {
	r.mu.Lock()
	if len(r.all) == 0 {
		r.mu.Unlock()
		return 0
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	empty := r.empty
	r.mu.Unlock()
	select {
	case <-empty:
		return 0
	case <-ctx.Done():
		return int(r.count.Load())
	}
}

// stop forgets all tasks, those that run as soon as their attempt is over.
func (r *reaper) stop() {
	r.mu.Lock()
	r.stopped = true
	r.timer.Stop()
	due := r.due
	for _, t := range r.due {
		r.forget(t)
	}
	r.due = nil
	r.mu.Unlock()
	for _, t := range due {
		t.forgotten()
	}
}

func (t *task) forgotten() {
	if t.giveUp != nil {
		t.giveUp()
	}
}

// forget removes t, which is not in the heap. r.mu is held.
func (r *reaper) forget(t *task) {
	delete(r.all, t)
	r.count.Add(-1)
	if t.token != "" {
		delete(r.orphans, t.token)
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
