package main

import "net/http"

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
	found, err := d.orders.get(r.Context(), id)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, found)
}
