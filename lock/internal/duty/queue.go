// Package duty has what is still to be done in the background after calls that a store did not
// answer: settles, questions for the outcome of a commit, and the removal of entries that have no
// holder.
package duty

import (
	"context"
	"sync"
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

	tokenPause = 100 * time.Millisecond // when the retry budget is spent, which gains a token meanwhile
	longPause  = 5 * time.Second
)

// Subject describes a [Duty] to operators.
type Subject struct {
	Key   string // as given to the Locker
	Entry string // the key in the store
	Token string // of the claim
	Owner string // as claimed
	Kind  string // of the event that will end the duty
}

// Duty is a call that a [Queue] repeats until it is done.
type Duty struct {
	Subject

	Try    func(closing bool) Progress
	GiveUp func()    // called if the duty is forgotten before it is done
	Size   int       // bytes that it keeps in memory
	Shrink func()    // frees them: called before the first Try if there is no room; may be nil if Size is 0
	Since  time.Time // set by the Queue

	clock.Schedule // unqueued while Try runs

	kind       *kind
	token      *token // of an orphan
	pause      time.Duration
	paid       bool // its running Try has taken a token
	again      bool // it was asked for while it ran
	confirming bool // it was answered, and is repeated to be sure
}

// Progress is the result of a Try. The zero Progress is a call without an answer.
type Progress struct {
	Done   bool
	Unsent bool          // no call was sent
	Shrunk bool          // the bytes of the duty are free
	Again  time.Duration // the pause before the next Try, after an answer; 0: a pause that grows
}

// Queue runs duties until the store has answered them. Callers come first: before Close, every
// Try takes a token of the retry budget. A Queue without duties has no goroutine.
type Queue struct {
	sender  *send.Sender
	maxLag  time.Duration // the longest time after the return of a call in which its command may still take effect
	pending send.Counter  // duties, answered or not

	mu    sync.Mutex
	kinds [2]kind // in the order of precedence
	all   map[*Duty]struct{}
	stage Stage
	stats Stats

	tokens   map[string]*token // of orphans
	most     int               // how many tokens there were since the map was made
	removing int               // orphans that are being removed
}

// Stats are the present numbers of a [Queue].
type Stats struct {
	Count   int   // duties that the store has not answered
	Bytes   int64 // that duties keep in memory
	Dropped int64 // removals that were given up for newer ones
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

// The stages of a Close.
const (
	Working   Stage = iota // before it
	Expedited              // it waits for the holders: pauses are short, and attempts take no tokens
	Draining               // the holders are done: an orphan is removed once
	stopped                // nothing is tried
)

// New returns a Queue without duties.
func New(sender *send.Sender, maxLag time.Duration) *Queue {
	q := &Queue{sender: sender, maxLag: maxLag, all: make(map[*Duty]struct{}), tokens: make(map[string]*token)}
	for i := range q.kinds {
		q.kinds[i].Queue = clock.NewQueue[*Duty](q.wake)
	}
	return q
}

// Stats returns the present numbers.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Wait returns 0 when nothing is left to do, or the number of duties when ctx ends.
func (q *Queue) Wait(ctx context.Context) int { return q.pending.Wait(ctx) }

// Add runs d as soon as there is room and a token for it, and again until it is done. After
// Stop, it gives d up instead.
func (q *Queue) Add(d *Duty) {
	q.mu.Lock()
	full := q.stats.Bytes+int64(d.Size) > maxBytes
	if full {
		d.Size = 0
	}
	q.stats.Bytes += int64(d.Size)
	q.mu.Unlock()
	if full {
		d.Shrink()
	}
	q.mu.Lock()
	started := q.start(d, ends, 0)
	if !started {
		q.stats.Bytes -= int64(d.Size)
	}
	q.mu.Unlock()
	if !started {
		d.GiveUp()
		return
	}
	q.wake()
}

// start queues d, to run after wait. q.mu is held.
func (q *Queue) start(d *Duty, in int, wait time.Duration) (started bool) {
	if q.stage == stopped {
		return false
	}
	d.Since, d.kind = time.Now(), &q.kinds[in]
	q.all[d] = struct{}{}
	q.pending.Enter()
	q.stats.Count++
	d.kind.Put(d, clock.Now().Add(wait))
	return true
}

// Now runs d before all that is merely due, or once more if it is running.
func (q *Queue) Now(d *Duty) {
	q.mu.Lock()
	if d.Place > 0 {
		d.kind.Put(d, min(clock.Now(), d.kind.First())-1)
	} else {
		d.again = true
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

func (q *Queue) tried(d *Duty, p Progress) {
	q.mu.Lock()
	answered := p.Done || p.Again > 0
	if d.paid && (p.Unsent || answered && q.sender.Sends.Count() < q.kinds[ends].running+q.kinds[removals].running) {
		q.sender.Retries.Give() // nothing was sent, or the store has answered and no caller needs it
	}
	d.kind.running--
	if p.Shrunk {
		q.stats.Bytes -= int64(d.Size)
		d.Size = 0
	}
	over := p.Done || q.stage == stopped
	if over {
		q.forget(d, p.Done)
	} else {
		if answered && !d.confirming {
			d.confirming = true
			q.stats.Count--
		}
		d.kind.Put(d, clock.Now().Add(d.postpone(p.Again, q.stage)))
	}
	q.mu.Unlock()
	if over && !p.Done {
		d.GiveUp()
	}
	q.wake()
}

// postpone returns the pause before the next Try. It doubles from 10 ms to 1 s: an
// entry that lands late is removed within the next pause. After 15 s it is 5 s.
func (d *Duty) postpone(again time.Duration, at Stage) (wait time.Duration) {
	d.pause = min(max(2*d.pause, 10*time.Millisecond), time.Second)
	if time.Since(d.Since) > 15*time.Second {
		d.pause = longPause
	}
	wait = d.pause
	if again > 0 {
		wait, d.pause = again, 0
	}
	if at == Draining || at == Expedited && again == 0 { // before Draining, a repeat that only confirms keeps its longer pause
		wait = min(wait, 50*time.Millisecond)
	}
	if d.again {
		d.again, wait = false, 0
	}
	return wait
}

// Advance goes on to a later stage, and makes all duties due.
func (q *Queue) Advance(to Stage) {
	q.mu.Lock()
	q.stage = max(q.stage, to)
	at := clock.Now()
	for d := range q.all {
		if d.pause = 0; d.Place > 0 {
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
	for d := range q.all {
		if d.Place > 0 {
			d.kind.Drop(d)
			q.forget(d, false)
			waiting = append(waiting, d)
		}
	}
	q.tokens, q.removing = nil, 0
	q.mu.Unlock()
	for _, d := range waiting {
		d.GiveUp()
	}
}

// forget removes d, which does not wait. The token of an orphan is kept for as long as the entry can exist: for its
// linger, too, unless the removal is done. q.mu is held.
func (q *Queue) forget(d *Duty, done bool) {
	delete(q.all, d)
	if k := d.token; k != nil {
		if k.until = q.entryMayExistUntil(k.orphan); !done {
			k.until = k.until.Add(k.orphan.Linger)
		}
		k.orphan = nil
		q.removing--
	}
	if !d.confirming {
		q.stats.Count--
	}
	q.stats.Bytes -= int64(d.Size)
	q.pending.Leave()
}

// List returns the duties that the store has not answered, in no order.
func (q *Queue) List() (all []*Duty) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for d := range q.all {
		if !d.confirming {
			all = append(all, d)
		}
	}
	return all
}
