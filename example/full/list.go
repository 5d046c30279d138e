package main

import (
	"context"
	"errors"
	"net/http"
)

// listOrders is GET /orders?user=U.
func (d *desk) listOrders(w http.ResponseWriter, r *http.Request) {
	user, err := userQuery(r)
	if err == nil {
		err = checkUser(user)
	}
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "Say whose orders, once: /orders?user=U."})
		return
	}
	all, err := d.orders.of(r.Context(), user)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, all)
}

// showOrder is GET /orders/{id}, the Location of a new order.
func (d *desk) showOrder(w http.ResponseWriter, r *http.Request) {
	id, err := orderID(r)
	if err != nil {
		refuse(w, errUnknownOrder)
		return
	}
	found, err := d.find(r.Context(), id)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, found)
}

// find returns an order. It looks at the accepted orders first: a worker may place this one
// meanwhile.
func (d *desk) find(ctx context.Context, id string) (record, error) {
	if d.jobs != nil {
		o, err := d.jobs.accepted(ctx, id)
		if !errors.Is(err, errNoOrder) {
			return record{order: o, Status: "accepted"}, err
		}
	}
	return d.orders.get(ctx, id)
}
