package main

import "net/http"

// payOrder is POST /orders/{id}/pay. It runs under the lock of its order.
func (d *desk) payOrder(w http.ResponseWriter, r *http.Request) {
	id, err := orderID(r)
	if err != nil {
		refuse(w, errUnknownOrder)
		return
	}
	if _, err := d.orders.get(r.Context(), id); err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	if err := discardBody(w, r); err != nil {
		refuse(w, err)
		return
	}
	if err := work(r.Context(), d.cfg.work); err != nil {
		refuse(w, err)
		return
	}
	if err := d.orders.pay(r.Context(), id); err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	d.metrics.payments.Inc()
	answerJSON(w, http.StatusOK, struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}{id, "paid"})
}

var errUnknownOrder = &refusal{http.StatusNotFound, "This desk knows no such order."}
