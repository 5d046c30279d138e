package main

import (
	"net/http"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// threeExports lets three exports of a user run at the same time, in all desks together.
func threeExports(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Lock(l, "export", userID, latch.WithPermits(3), latch.WithContentionStatus(http.StatusTooManyRequests))
}

// exportOrders is POST /exports: all orders of a user, which takes its time.
func (d *desk) exportOrders(w http.ResponseWriter, r *http.Request) {
	user, err := userID(r)
	if err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "X-User-ID is missing or malformed."})
		return
	}
	takes, err := durationOf(r, "X-Work", d.cfg.work)
	if err == nil {
		err = discardBody(w, r)
	}
	if err == nil {
		err = work(r.Context(), takes)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	all, err := d.orders.of(r.Context(), user)
	if err != nil {
		refuse(w, d.ordersError(err))
		return
	}
	answerJSON(w, http.StatusOK, all)
}
