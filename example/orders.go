package main

import (
	"crypto/rand"
	"errors"
	"sync"
)

// order is one order, as clients see it.
type order struct {
	ID       string `json:"id"`
	User     string `json:"user"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// record is an order with what became of it.
type record struct {
	order
	Status string `json:"status"`          // placed or paid
	Fence  int64  `json:"fence,omitempty"` // of the lease it was placed under, with -fencing
}

// orders is the table of a real desk's database. It is safe for concurrent use.
type orders struct {
	mu     sync.Mutex
	byID   map[string]*record
	byUser map[string][]*record
	fences map[string]int64 // the highest seen, by user
}

var (
	errOvertaken = errors.New("a later lease of this user has written already")
	errNoOrder   = errors.New("no such order")
)

func newOrders() *orders {
	return &orders{
		byID:   make(map[string]*record),
		byUser: make(map[string][]*record),
		fences: make(map[string]int64),
	}
}

// place makes o exist and gives it an ID. With a fence it refuses a holder
// that has been overtaken while it did not look: what no lease can do, because
// a paused process does not know that its lease is over.
func (t *orders) place(o order, fence int64, fenced bool) (order, error) {
	o.ID = rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
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

// pay marks an order as paid; paying again changes nothing.
func (t *orders) pay(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.byID[id]
	if !ok {
		return errNoOrder
	}
	r.Status = "paid"
	return nil
}

func (t *orders) get(id string) (record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.byID[id]
	if !ok {
		return record{}, errNoOrder
	}
	return *r, nil
}

// of returns the orders of user, oldest first, never nil.
func (t *orders) of(user string) []record {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]record, 0, len(t.byUser[user]))
	for _, r := range t.byUser[user] {
		all = append(all, *r)
	}
	return all
}
