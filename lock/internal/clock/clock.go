// Package clock times leases: moments of one process, and queues with one timer each.
package clock

import (
	"container/heap"
	"math"
	"time"
)

// Moment is a point in time: the time since the start of the process. It takes one word
// where a time.Time takes three, and costs half as much to read, since it has no wall clock.
type Moment time.Duration

// Never is later than every other Moment.
const Never Moment = math.MaxInt64

var start = time.Now()

// Now returns the present moment, by the monotonic clock.
func Now() Moment { return Moment(time.Since(start)) }

// Since returns the time from m to now.
func (m Moment) Since() time.Duration { return time.Duration(Now() - m) }

// Until returns the time from now to m.
func (m Moment) Until() time.Duration { return time.Duration(m - Now()) }

// Add returns the moment d later, at most [Never].
func (m Moment) Add(d time.Duration) Moment {
	if sum := m + Moment(d); d <= 0 || sum > m {
		return sum
	}
	return Never
}

// Wall returns m by the wall clock as it is set now.
func (m Moment) Wall() time.Time { return time.Now().Add(-m.Since()) }

// Queue keeps items in the order of their due moments. It has one timer for all of them,
// which calls wake when the first is due. It has no lock: its owner locks it.
type Queue[T Scheduled] struct {
	items dueHeap[T]
	wake  func() // calls Fired
	timer *time.Timer
	set   Moment // when the timer fires; Never if it is stopped
}

// Scheduled is an item of a [Queue].
type Scheduled interface{ When() *Schedule }

// Schedule has the due moment of an item, and its place in its [Queue].
type Schedule struct {
	Due   Moment
	Place int32 // in the heap, from 1; 0: not queued before; less: removed. Only the Queue writes it
}

// When returns s, so that an item may embed its Schedule.
func (s *Schedule) When() *Schedule { return s }

// NewQueue returns an empty queue that calls wake on a goroutine of its timer.
func NewQueue[T Scheduled](wake func()) Queue[T] {
	return Queue[T]{wake: wake, set: Never}
}

// Put makes t due at the moment due, whether t is queued or not.
func (q *Queue[T]) Put(t T, due Moment) {
	s := t.When()
	if s.Due = due; s.Place > 0 {
		heap.Fix(&q.items, int(s.Place-1))
	} else {
		heap.Push(&q.items, t)
	}
}

// Drop removes t, which is queued.
func (q *Queue[T]) Drop(t T) { heap.Remove(&q.items, int(t.When().Place-1)) }

// First returns the due moment of the first item, Never if the queue is empty.
func (q *Queue[T]) First() Moment {
	if len(q.items) == 0 {
		return Never
	}
	return q.items[0].When().Due
}

// Pop removes the first item of a queue that is not empty, and returns it.
func (q *Queue[T]) Pop() T { return heap.Pop(&q.items).(T) } //nolint:errcheck,forcetypeassert // a queue has no other items

// Arm calls wake at the moment at, unless the timer fires earlier.
func (q *Queue[T]) Arm(at Moment) {
	switch {
	case at >= q.set:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(at.Until(), q.wake)
	default:
		q.timer.Reset(at.Until())
	}
	q.set = at
}

// Fired notes that wake runs.
func (q *Queue[T]) Fired() { q.set = Never }

// dueHeap sorts items by their due moments, for package container/heap.
type dueHeap[T Scheduled] []T

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].When().Due < h[j].When().Due }
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].When().Place, h[j].When().Place = int32(i+1), int32(j+1) //nolint:gosec // not so many fit in any memory
}

func (h *dueHeap[T]) Push(x any) {
	t := x.(T)                          //nolint:errcheck // no other type is pushed
	t.When().Place = int32(len(*h) + 1) //nolint:gosec // not so many fit in any memory
	*h = append(*h, t)
}

func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	t.When().Place = -1
	return t
}
