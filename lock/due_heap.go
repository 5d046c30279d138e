package lock

// dueHeap has first what is due first. Package container/heap would take a sixth longer
// to claim and release a key of a store with many.
type dueHeap[T scheduled[T]] []T

type scheduled[T any] interface {
	dueBefore(other T) bool
	moved(to int) // its place in the heap is that now; nowhere: it has left
}

const nowhere = -1

func (h *dueHeap[T]) add(t T) {
	*h = append(*h, t)
	h.fix(len(*h) - 1)
}

// remove removes what is at i, and returns it.
func (h *dueHeap[T]) remove(i int) (t T) {
	last := len(*h) - 1
	t, (*h)[i] = (*h)[i], (*h)[last]
	clear((*h)[last:])
	if *h = (*h)[:last]; i < last {
		h.fix(i)
	}
	t.moved(nowhere)
	return t
}

// fix brings what is at i, and may be due at another time now, to its place.
func (h dueHeap[T]) fix(i int) {
	t := h[i]
	for i > 0 && t.dueBefore(h[(i-1)/2]) {
		i = h.move((i-1)/2, i)
	}
	for child := 2*i + 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1].dueBefore(h[child]) {
			child++
		}
		if !h[child].dueBefore(t) {
			break
		}
		i = h.move(child, i)
	}
	h[i] = t
	t.moved(i)
}

func (h dueHeap[T]) move(from, to int) int {
	h[to] = h[from]
	h[to].moved(to)
	return from
}
