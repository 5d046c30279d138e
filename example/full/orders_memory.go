package main

import (
	"context"
	"crypto/rand"
	"sync"
)

// memoryOrders are the orders of one process.
type memoryOrders struct {
	mu     sync.Mutex
	byID   map[string]*record
	byUser map[string][]*record
	fences map[string]int64 // the highest seen, by user
}

func newMemoryOrders() *memoryOrders {
	return &memoryOrders{
		byID:   make(map[string]*record),
		byUser: make(map[string][]*record),
		fences: make(map[string]int64),
	}
}

func (t *memoryOrders) place(_ context.Context, o order, fence int64, fenced bool) (order, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.ID == "" {
		o.ID = rand.Text()
	} else if placed, ok := t.byID[o.ID]; ok {
		return placed.order, nil // by an earlier try of its job
	}
	if fenced {
		if fence < t.fences[o.User] {
			return order{}, errOvertaken
		}
		t.fences[o.User] = fence
	}
	r := &record{o, "placed", fence}
	t.byID[o.ID] = r
	t.byUser[o.User] = append(t.byUser[o.User], r)
	return o, nil
}

func (t *memoryOrders) pay(_ context.Context, id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.byID[id]
	if !ok {
		return errNoOrder
	}
	r.Status = "paid"
	return nil
}

func (t *memoryOrders) get(_ context.Context, id string) (record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.byID[id]
	if !ok {
		return record{}, errNoOrder
	}
	return *r, nil
}

func (t *memoryOrders) of(_ context.Context, user string) ([]record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]record, 0, len(t.byUser[user]))
	for _, r := range t.byUser[user] {
		all = append(all, *r)
	}
	return all, nil
}
