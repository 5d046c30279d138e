package lock

import (
	"container/heap"
	"math"
	"time"

	"github.com/httplatch/httplatch/lock/internal/bounded"
)

// moment is a point in time, as long after the start of the process as it says.
// It is what a lease is timed by: a word in place of the three of a time.Time,
// and read at half the cost, since it has nothing to say of the wall clock.
type moment time.Duration

var base = time.Now()

func now() moment { return moment(time.Since(base)) }

func (m moment) since() time.Duration { return time.Duration(now() - m) }
func (m moment) until() time.Duration { return time.Duration(m - now()) }

// add returns the moment that is d later, or the last one there is.
func (m moment) add(d time.Duration) moment { return moment(bounded.Later(int64(m), d)) }

// wall is m by the wall clock as it is set now.
func (m moment) wall() time.Time { return time.Now().Add(-m.since()) }

// timerQueue has items in the order in which they are due, and one timer, however many
// they are, which calls wake when the first is. It is locked with what it is part of.
type timerQueue[T scheduled] struct {
	items dueHeap[T]
	wake  func() // calls fired
	timer *time.Timer
	set   moment // when the timer fires; never if it does not
}

const never = math.MaxInt64

// scheduled is an item of a timerQueue.
type scheduled interface{ when() *schedule }

// schedule is when an item is due, and where it is.
type schedule struct {
	due   moment
	place int32 // in the heap, from 1; 0: it was in none yet; out: it is in none now
}

const out = -1

func (s *schedule) when() *schedule { return s }

// queued reports whether the item is in its queue.
func (s *schedule) queued() bool { return s.place > 0 }

func newTimerQueue[T scheduled](wake func()) timerQueue[T] {
	return timerQueue[T]{wake: wake, set: never}
}

// put has t due then, whether it is in the queue or not.
func (q *timerQueue[T]) put(t T, due moment) {
	s := t.when()
	s.due = due
	if s.queued() {
		heap.Fix(&q.items, int(s.place-1))
		return
	}
	heap.Push(&q.items, t)
}

// drop takes t out if it is there.
func (q *timerQueue[T]) drop(t T) {
	if s := t.when(); s.queued() {
		heap.Remove(&q.items, int(s.place-1))
	}
}

// clear takes all out.
func (q *timerQueue[T]) clear() {
	for len(q.items) > 0 {
		heap.Pop(&q.items)
	}
	q.stop()
}

// first is when the first item is due; never if there is none.
func (q *timerQueue[T]) first() moment {
	if len(q.items) == 0 {
		return never
	}
	return q.items[0].when().due
}

// pop takes out the first item, which there is.
func (q *timerQueue[T]) pop() T {
	t := q.items[0]
	heap.Pop(&q.items)
	return t
}

// arm has wake called then, unless it is called before that anyway.
func (q *timerQueue[T]) arm(at moment) {
	switch {
	case at >= q.set:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(at.until(), q.wake)
	default:
		q.timer.Reset(at.until())
	}
	q.set = at
}

// fired says that wake runs.
func (q *timerQueue[T]) fired() { q.set = never }

// stop keeps wake from being called until the next arm.
func (q *timerQueue[T]) stop() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.set = never
}

// dueHeap has first what is due first, for package container/heap.
type dueHeap[T scheduled] []T

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].when().due < h[j].when().due }
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].when().place, h[j].when().place = int32(i+1), int32(j+1) //nolint:gosec // not so many fit in any memory
}

func (h *dueHeap[T]) Push(x any) {
	t := x.(T)                          //nolint:errcheck // only those are pushed
	t.when().place = int32(len(*h) + 1) //nolint:gosec // as above
	*h = append(*h, t)
}

func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	t.when().place = out
	return t
}
