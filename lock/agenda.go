package lock

import (
	"container/heap"
	"time"
)

// agenda knows when the leases of a gate's shard are to be renewed. It is locked
// with the shard.
//
// Most leases end long before that, so a timer for each would be the most
// expensive thing about them, and do nothing. Here they share one, which is set
// when there is nothing earlier, and left alone when the lease that it was set
// for has gone.
type agenda struct {
	leases leaseHeap
	wake   func() // calls start
	timer  *time.Timer
	set    time.Time // when the timer fires; zero if it does not
}

// add has e renewed when it is due.
func (a *agenda) add(e *Lease, now, due time.Time) {
	e.due = due
	heap.Push(&a.leases, e)
	a.arm(now)
}

// drop takes e off if it is there.
func (a *agenda) drop(e *Lease) {
	if e.place > 0 {
		heap.Remove(&a.leases, e.place-1)
	}
}

// start starts the renewals that are due.
func (a *agenda) start(now time.Time) {
	a.set = time.Time{}
	for len(a.leases) > 0 && !now.Before(a.leases[0].due) {
		e := a.leases[0]
		heap.Pop(&a.leases)
		go e.renew()
	}
	if len(a.leases) > 0 {
		a.arm(now)
	}
}

// arm sets the timer for the earliest, unless it fires before that anyway.
func (a *agenda) arm(now time.Time) {
	first := a.leases[0].due
	if !a.set.IsZero() && !first.Before(a.set) {
		return
	}
	a.set = first
	if a.timer == nil {
		a.timer = time.AfterFunc(first.Sub(now), a.wake)
		return
	}
	a.timer.Reset(first.Sub(now))
}

// stop forgets all.
func (a *agenda) stop() {
	for len(a.leases) > 0 {
		heap.Pop(&a.leases)
	}
	if a.timer != nil {
		a.timer.Stop()
		a.set = time.Time{}
	}
}

// leaseHeap orders leases by when their renewal is due.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *leaseHeap) Push(x any) {
	e := x.(*Lease) //nolint:errcheck // only leases are pushed
	*h = append(*h, e)
	e.place = len(*h)
}

func (h *leaseHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.place = 0
	return e
}
