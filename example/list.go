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
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, d.orders.of(user))
}

// showOrder is GET /orders/{id}, where Location leads to.
func (d *desk) showOrder(w http.ResponseWriter, r *http.Request) {
	id, err := orderID(r)
	if err != nil {
		refuse(w, errUnknownOrder)
		return
	}
	found, err := d.orders.get(id)
	if err != nil {
		refuse(w, errUnknownOrder)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, found)
}
