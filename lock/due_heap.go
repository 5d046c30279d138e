package lock

// dueHeap has first what is due first, for package container/heap.
type dueHeap[T scheduled[T]] []T

type scheduled[T any] interface {
	dueBefore(other T) bool
	moved(to int) // its place in the heap is that now; nowhere: it has left
}

const nowhere = -1

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].dueBefore(h[j]) }
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].moved(i)
	h[j].moved(j)
}

func (h *dueHeap[T]) Push(x any) {
	t := x.(T) //nolint:errcheck // only those are pushed
	t.moved(len(*h))
	*h = append(*h, t)
}

func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	t.moved(nowhere)
	return t
}
