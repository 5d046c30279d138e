package main

import (
	"context"
	"errors"
)

// order is one order, as clients see it.
type order struct {
	ID       string `json:"id"`
	User     string `json:"user"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// record is an order with its state.
type record struct {
	order
	Status string `json:"status"`          // placed or paid
	Fence  int64  `json:"fence,omitempty"` // of the lease it was placed under, with -fencing
}

// orders keeps the desk's orders. It is safe for concurrent use.
type orders interface {
	// place stores o and gives it an ID, unless o is of a job and has one. With a fence it
	// returns errOvertaken to a holder that has been overtaken. No lease can do this, because a
	// paused process does not know that its lease is over.
	place(ctx context.Context, o order, fence int64, fenced bool) (order, error)

	// pay marks an order as paid. Paying again changes nothing. Its error may be
	// errNoOrder, as for get.
	pay(ctx context.Context, id string) error
	get(ctx context.Context, id string) (record, error)

	// of returns the orders of user, oldest first, never nil.
	of(ctx context.Context, user string) ([]record, error)
}

var (
	errOvertaken = errors.New("a later lease of this user has written already")
	errNoOrder   = errors.New("no such order")
)
