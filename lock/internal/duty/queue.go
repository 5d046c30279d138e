package duty

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	maxRunning = 8 // duties of one kind that call the store at once

	// maxBytes bounds the memory of the receipts that wait for the store: 64 of the longest answers that
	// package middleware keeps by default, or more than a minute of 1,000 answers a second with 1 KiB
	// each. An outage may last longer, and must not end the process.
	maxBytes = 64 << 20

	// tokenPause is the pause of the queue when the retry budget is spent. The budget gains at
	// least one token in that time.
	tokenPause = 100 * time.Millisecond
)

// Queue runs duties until the store has answered them. Callers come first: before Close, every
// Try takes a token of the retry budget. A Queue without duties has no goroutine.
type Queue struct {
	sender  *send.Sender
	maxLag  time.Duration // the longest time after the return of a call in which its command may still take effect
	count   atomic.Int64  // duties that the store has not answered
	dropped atomic.Int64
	bytes   atomic.Int64
	pending send.Counter // answered or not

	mu     sync.Mutex
	kinds  [2]kind // in the order of precedence
	all    map[*Duty]struct{}
	tokens tokens
	stage  Stage

	longest time.Duration // the longest lease that was announced
}

// The kinds of a Queue. Ends go first, because callers wait for them.
const (
	ends = iota
	removals
)

// kind holds the duties of one kind, except those that run.
type kind struct {
	clock.Queue[*Duty]

	running int
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

	stopped // nothing is tried
)

// New returns a Queue without duties. maxLag is the longest time after the return of a call in
// which its command may still take effect.
func New(sender *send.Sender, maxLag time.Duration) *Queue {
	q := &Queue{sender: sender, maxLag: maxLag, all: make(map[*Duty]struct{})}
	for i := range q.kinds {
		q.kinds[i].Queue = clock.NewQueue[*Duty](q.wake)
	}
	return q
}

// AnnounceLease notes that claims ask for leases of this length.
func (q *Queue) AnnounceLease(lease time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.longest = max(q.longest, lease)
}

// Count returns the number of duties that the store has not answered.
func (q *Queue) Count() int { return int(q.count.Load()) }

// Bytes returns the memory that duties keep.
func (q *Queue) Bytes() int64 { return q.bytes.Load() }

// Dropped returns the number of removals that were given up for newer ones.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// Wait returns 0 when nothing is left to do, or the number of duties when ctx ends.
func (q *Queue) Wait(ctx context.Context) int { return q.pending.Wait(ctx) }

// Add runs d as soon as there is room and a token for it, and again until it is done. After
// Stop, it gives d up instead.
func (q *Queue) Add(d *Duty) {
	q.mu.Lock()
	full := q.bytes.Load()+int64(d.Size) > maxBytes
	if full {
		d.Size = 0
	}
	q.bytes.Add(int64(d.Size))
	q.mu.Unlock()
	if full {
		d.Shrink()
	}
	q.mu.Lock()
	started := q.start(d, ends, 0)
	q.mu.Unlock()
	if !started {
		q.bytes.Add(-int64(d.Size))
		d.giveUp()
		return
	}
	q.wake()
}

// start queues d, to run after wait. q.mu is held.
func (q *Queue) start(d *Duty, in int, wait time.Duration) (started bool) {
	if q.stage == stopped {
		return false
	}
	d.born, d.kind = time.Now(), &q.kinds[in]
	q.all[d] = struct{}{}
	q.pending.Enter()
	q.count.Add(1)
	d.kind.Put(d, clock.Now().Add(wait))
	return true
}

// Now runs d before all that is merely due, or once more if it is running.
func (q *Queue) Now(d *Duty) {
	q.mu.Lock()
	if d.Place <= 0 {
		d.again = true
	} else {
		d.kind.Put(d, min(clock.Now(), d.kind.First())-1)
	}
	q.mu.Unlock()
	q.wake()
}

// wake starts the duties that are due and paid for, and sets the timer for the others.
func (q *Queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := clock.Now()
	for i := range q.kinds {
		l := &q.kinds[i]
		l.Fired()
		for l.running < maxRunning && at >= l.First() {
			paid := q.stage == Working
			if paid && !q.sender.Retries.Take() {
				l.Arm(at.Add(tokenPause))
				return
			}
			d := l.Pop()
			d.paid = paid
			l.running++
			go func(closing bool) { q.tried(d, d.Try(closing)) }(q.stage == Draining)
		}
		if l.running < maxRunning {
			l.Arm(l.First())
		}
	}
}

// tried notes the end of a Try of d.
func (q *Queue) tried(d *Duty, p Progress) {
	q.mu.Lock()
	answered := p.answered()
	if d.paid && (p.Unsent || answered && q.sender.Sends.Count() < q.kinds[ends].running+q.kinds[removals].running) {
		q.sender.Retries.Give() // nothing was sent, or the store has answered and no caller needs it
	}
	d.kind.running--
	if p.Shrunk {
		q.bytes.Add(-int64(d.Size))
		d.Size = 0
	}
	over := p.Done || q.stage == stopped
	if over {
		q.forget(d)
	} else {
		if answered && !d.confirming {
			d.confirming = true
			q.count.Add(-1)
		}
		d.kind.Put(d, clock.Now().Add(d.postpone(p.Again, q.stage)))
	}
	q.mu.Unlock()
	if over && !p.Done {
		d.giveUp()
	}
	q.wake()
}

// Advance goes on to a later stage, and makes all duties due.
func (q *Queue) Advance(to Stage) {
	q.mu.Lock()
	q.stage = max(q.stage, to)
	at := clock.Now()
	for d := range q.all {
		d.pause = 0
		if d.Place > 0 {
			d.kind.Put(d, at)
		}
	}
	q.mu.Unlock()
	q.wake()
}

// Stop forgets all duties. One that is running is forgotten after its Try.
func (q *Queue) Stop() {
	q.mu.Lock()
	q.stage = stopped
	var waiting []*Duty
	for i := range q.kinds {
		waiting = append(waiting, q.kinds[i].Clear()...)
	}
	for _, d := range waiting {
		q.forget(d)
	}
	q.tokens = tokens{}
	q.mu.Unlock()
	for _, d := range waiting {
		d.giveUp()
	}
}

// forget removes d, which does not wait. q.mu is held.
func (q *Queue) forget(d *Duty) {
	delete(q.all, d)
	if !d.confirming {
		q.count.Add(-1)
	}
	q.bytes.Add(-int64(d.Size))
	q.pending.Leave()
}

// Pending is a duty that the store has not answered.
type Pending struct {
	Subject
	Since time.Time
}

// List returns the duties that the store has not answered, in no order.
func (q *Queue) List() []Pending {
	var all []Pending
	q.mu.Lock()
	defer q.mu.Unlock()
	for d := range q.all {
		if !d.confirming {
			all = append(all, Pending{d.Subject, d.born})
		}
	}
	return all
}
