package main

import (
	"slices"
	"sync"
)

const (
	// burstHeader names the burst of clicks that a form belongs to. It is no field of the form,
	// which has to stay the same for as long as its one-time key does.
	burstHeader   = "X-Burst"
	maxBurstBytes = 64

	keptBursts = 4096 // orders
)

// burstLog remembers which orders each burst of clicks has placed. So the page counts its own
// orders, even if their answers are lost, and not the orders of other clients. It forgets the
// oldest.
type burstLog struct {
	mu     sync.Mutex
	placed []burstOrder
}

type burstOrder struct{ burst, id string }

// note notes that burst has placed an order. "" and long names are not noted.
func (l *burstLog) note(burst, id string) {
	if burst == "" || len(burst) > maxBurstBytes {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.placed = append(l.placed, burstOrder{burst, id})
	if extra := len(l.placed) - keptBursts; extra > 0 {
		l.placed = slices.Delete(l.placed, 0, extra)
	}
}

// of lists the IDs of the orders that burst has placed, never nil.
func (l *burstLog) of(burst string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := []string{}
	for _, o := range l.placed {
		if o.burst == burst {
			ids = append(ids, o.id)
		}
	}
	return ids
}
