package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// keys are the locks of a cart of user. An order of this user has the first of them, too.
func (c cartRequest) keys(user string) []string {
	keys := []string{lock.Key("user", user)}
	if c.Coupon != "" {
		keys = append(keys, lock.Key("coupon", c.Coupon))
	}
	for _, item := range c.Items {
		keys = append(keys, lock.Key("item", item.SKU))
	}
	return keys
}

// createCart is POST /carts: an order for each item. It holds the user, the coupon and each item
// as one set, all or none. The orders of a cart are one transaction with an Idempotency-Key and a
// database; otherwise a failure in the middle leaves the first of them.
func (d *desk) createCart(w http.ResponseWriter, r *http.Request) {
	user, err := userID(r)
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "X-User-ID is missing or malformed."})
		return
	}
	cart, err := readBody[cartRequest](w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	takes, err := durationOf(r, "X-Work", d.cfg.work)
	if err != nil {
		refuse(w, err)
		return
	}
	var placed []order
	err = d.locker.DoAll(r.Context(), cart.keys(user), func(ctx context.Context) error {
		if err := work(ctx, takes); err != nil {
			return err
		}
		placed, err = d.placeAll(ctx, user, cart.Items)
		return err
	})
	if p := latch.ProblemOf(err); p != nil {
		if refused, ok := errors.AsType[*lock.RefusedError](err); ok {
			p.Detail = "The cart needs " + refused.Entry.Key + ", which is taken."
		}
		p.ServeHTTP(w, r)
		return
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answerJSON(w, http.StatusCreated, map[string][]order{"orders": placed})
}

// placeAll places an order for each item, under the set of ctx.
func (d *desk) placeAll(ctx context.Context, user string, items []orderRequest) (placed []order, err error) {
	set, _ := lock.SetFromContext(ctx)
	fence, fenced := set.Fence(lock.Key("user", user))
	for _, item := range items {
		o, err := d.orders.place(ctx, order{User: user, SKU: item.SKU, Quantity: item.Quantity}, fence, fenced)
		if err != nil {
			return nil, d.ordersError(err)
		}
		d.metrics.orders.Inc()
		placed = append(placed, o)
	}
	return placed, nil
}
