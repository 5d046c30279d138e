package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// maxWork is how long an order may take, and how long a shutdown waits for it.
const maxWork = 30 * time.Second

type order struct {
	ID       string `json:"id"`
	User     string `json:"user"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Status   string `json:"status,omitempty"` // placed or paid
}

// orders are the orders of this process.
type orders struct {
	mu  sync.Mutex
	all []order
}

func (o *orders) place(placed order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	placed.Status = "placed"
	o.all = append(o.all, placed)
}

// get returns an order. With pay it marks the order as paid before.
func (o *orders) get(id string, pay bool) (found order, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.all, func(one order) bool { return one.ID == id })
	if i < 0 {
		return order{}, false
	}
	if pay {
		o.all[i].Status = "paid"
	}
	return o.all[i], true
}

// of returns the orders of user, the oldest first.
func (o *orders) of(user string) []order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(append([]order{}, o.all...), func(one order) bool { return one.User != user })
}

// createOrder is POST /orders. It runs under the lock of its user.
func (d *desk) createOrder(w http.ResponseWriter, r *http.Request) {
	takes, err := time.ParseDuration(cmp.Or(r.Header.Get("X-Work"), d.cfg.work.String()))
	if err != nil || takes < 0 || takes > maxWork {
		refuse(w, r, http.StatusBadRequest, `X-Work is a duration of up to 30s, such as "300ms".`)
		return
	}
	var o order
	err = json.NewDecoder(r.Body).Decode(&o) // of bounded length: see WithBodyFirst
	if err != nil || o.SKU == "" || o.Quantity < 1 {
		refuse(w, r, http.StatusBadRequest, `An order is a JSON object such as {"sku":"tea","quantity":1}.`)
		return
	}
	if !work(w, r, takes) {
		return
	}
	o.ID, o.User, o.Status = rand.Text(), r.Header.Get("X-User-ID"), "" // the guards have refused a request without a user
	d.orders.place(o)
	if fail(w, r) {
		return
	}
	w.Header().Set("Location", "/orders/"+o.ID)
	answer(w, http.StatusCreated, o)
}

// work stands for the work of an order. It stops when the client leaves, or the lease is lost.
func work(w http.ResponseWriter, r *http.Request, takes time.Duration) (done bool) {
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		refuse(w, r, http.StatusServiceUnavailable, "The lock was lost before the work was done; nothing was done.")
		return false
	}
}

// fail fails after the order was placed, if X-Fail says so. A retry places another one, unless X-Commit is 1.
func fail(w http.ResponseWriter, r *http.Request) (failed bool) {
	if r.Header.Get("X-Commit") == "1" && lock.Commit(r.Context()) != nil {
		refuse(w, r, http.StatusInternalServerError, "X-Commit needs an Idempotency-Key, and its lease. The order exists.")
		return true
	}
	switch r.Header.Get("X-Fail") {
	case "":
		return false
	case "panic":
		panic("X-Fail asked for this")
	case "hang":
		<-r.Context().Done()
	}
	answer(w, http.StatusInternalServerError, "X-Fail asked for this. The order exists.") // kept only after lock.Commit
	return true
}

// payOrder is POST /orders/{id}/pay. It runs under the lock of its order.
func (d *desk) payOrder(w http.ResponseWriter, r *http.Request) {
	id, _ := orderID(r) // a guard has refused a request without one
	if _, ok := d.orders.get(id, false); !ok {
		refuse(w, r, http.StatusNotFound, "This desk knows no such order.")
	} else if work(w, r, d.cfg.work) {
		d.orders.get(id, true)
		answer(w, http.StatusOK, map[string]string{"id": id, "status": "paid"})
	}
}

// showOrder is GET /orders/{id}.
func (d *desk) showOrder(w http.ResponseWriter, r *http.Request) {
	id, _ := orderID(r) // "" is no order, too
	if found, ok := d.orders.get(id, false); ok {
		answer(w, http.StatusOK, found)
	} else {
		refuse(w, r, http.StatusNotFound, "This desk knows no such order.")
	}
}

// listOrders is GET /orders?user=U.
func (d *desk) listOrders(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	answer(w, http.StatusOK, d.orders.of(r.FormValue("user")))
}

// refuse answers with a refusal of the desk, which no guard keeps.
func refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	(&latch.Problem{Status: status, Title: http.StatusText(status), Detail: detail}).Respond(w, r, nil)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has left
}
