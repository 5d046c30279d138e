package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// createOrder is POST /orders. It runs under the lock of its user.
func (d *desk) createOrder(w http.ResponseWriter, r *http.Request) {
	user, err := userID(r)
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "X-User-ID is missing or malformed."})
		return
	}
	wanted, err := readBody[orderRequest](w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	switch r.URL.Query().Get("later") {
	case "":
	case "1":
		d.acceptOrder(w, r, order{User: user, SKU: wanted.SKU, Quantity: wanted.Quantity})
		return
	default:
		refuse(w, &refusal{http.StatusBadRequest, `"later" must be 1.`})
		return
	}
	trial, err := trialOf(r, d.cfg.work)
	if err != nil {
		refuse(w, err)
		return
	}
	if err := work(r.Context(), trial.work); err != nil {
		refuse(w, err)
		return
	}

	lease, _ := lock.FromContext(r.Context())
	fence, fenced := lease.Fence()
	placed, err := d.orders.place(r.Context(), order{User: user, SKU: wanted.SKU, Quantity: wanted.Quantity}, fence, fenced)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	d.metrics.orders.Inc()
	if err := trial.after(r.Context()); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Location", "/orders/"+placed.ID)
	answerJSON(w, http.StatusCreated, placed)
}

// ordersError returns the refusal for an error of the orders. The text of a database's error
// goes to the log only.
func (d *desk) ordersError(err error) error {
	switch {
	case errors.Is(err, errOvertaken):
		return errLeaseOver
	case errors.Is(err, errNoOrder):
		return errUnknownOrder
	default:
		d.logger.Error("the orders cannot be reached", "error", err)
		return &refusal{http.StatusServiceUnavailable, "The orders cannot be reached."}
	}
}

// errLeaseOver stops a handler whose lease is over: another one may be running.
var errLeaseOver = &refusal{http.StatusServiceUnavailable, "The lock was lost before the work was done; nothing was done."}

// work stands for the work of an order or a payment. It ends early when ctx
// does: the client has left, or the lease is over.
func work(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return errLeaseOver
	}
	return nil
}
