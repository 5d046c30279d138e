package clock

import (
	"container/heap"
	"time"
)

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
	place int32 // in the heap, from 1; 0: not queued before; out: removed
}

const out = -1

// When returns s, so that an item may embed its Schedule.
func (s *Schedule) When() *Schedule { return s }

// Queued reports whether the item is in its queue.
func (s *Schedule) Queued() bool { return s.place > 0 }

// NeverQueued reports whether the item was never put in a queue.
func (s *Schedule) NeverQueued() bool { return s.place == 0 }

// NewQueue returns an empty queue that calls wake on a goroutine of its timer.
func NewQueue[T Scheduled](wake func()) Queue[T] {
	return Queue[T]{wake: wake, set: Never}
}

// Put makes t due at the moment due, whether t is queued or not.
func (q *Queue[T]) Put(t T, due Moment) {
	s := t.When()
	s.Due = due
	if s.Queued() {
		heap.Fix(&q.items, int(s.place-1))
		return
	}
	heap.Push(&q.items, t)
}

// Drop removes t, which is queued.
func (q *Queue[T]) Drop(t T) { heap.Remove(&q.items, int(t.When().place-1)) }

// Clear removes all items and returns them, and prevents calls of wake until the next Arm.
func (q *Queue[T]) Clear() (all []T) {
	for len(q.items) > 0 {
		all = append(all, q.Pop())
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.set = Never
	return all
}

// First returns the due moment of the first item, Never if the queue is empty.
func (q *Queue[T]) First() Moment {
	if len(q.items) == 0 {
		return Never
	}
	return q.items[0].When().Due
}

// Pop removes the first item of a queue that is not empty, and returns it.
func (q *Queue[T]) Pop() T {
	t := q.items[0]
	heap.Pop(&q.items)
	return t
}

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
	h[i].When().place, h[j].When().place = int32(i+1), int32(j+1) //nolint:gosec // not so many fit in any memory
}

func (h *dueHeap[T]) Push(x any) {
	t := x.(T)                          //nolint:errcheck // no other type is pushed
	t.When().place = int32(len(*h) + 1) //nolint:gosec // not so many fit in any memory
	*h = append(*h, t)
}

func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	t.When().place = out
	return t
}
