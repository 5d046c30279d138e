package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

const maxBody = 64 << 10

type order struct {
	ID       string `json:"id"`
	User     string `json:"user"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Status   string `json:"status,omitempty"` // placed or paid
}

// orders are the orders of this process, in memory and without a bound.
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

// get returns an order, which it first marks as paid if pay is true.
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
	user, _ := userID(r) // the guards have refused requests without one
	placed := order{ID: rand.Text(), User: user}
	takes, err := time.ParseDuration(r.Header.Get("X-Work"))
	if r.Header.Get("X-Work") == "" {
		takes, err = d.cfg.work, nil
	}
	if err != nil || takes < 0 || takes > maxWork {
		refuse(w, r, http.StatusBadRequest, `X-Work is a duration of up to 30s, such as "300ms".`)
		return
	}
	wanted := struct {
		SKU      *string `json:"sku"`
		Quantity *int    `json:"quantity"`
	}{&placed.SKU, &placed.Quantity}
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&wanted)
	if err != nil || placed.SKU == "" || placed.Quantity < 1 {
		refuse(w, r, http.StatusBadRequest, `An order is a JSON object: {"sku":"tea","quantity":1}.`)
		return
	}
	if !work(r, takes) {
		refuse(w, r, http.StatusServiceUnavailable, "The lock was lost before the work was done; nothing was done.")
		return
	}
	d.orders.place(placed)
	if fail(w, r) {
		return
	}
	w.Header().Set("Location", "/orders/"+placed.ID)
	answer(w, http.StatusCreated, placed)
}

// work stands for the work of an order or a payment. It ends early, and returns false, when the
// context does: the client has left, or the lease is lost.
func work(r *http.Request, takes time.Duration) bool {
	select {
	case <-time.After(takes):
		return true
	case <-r.Context().Done():
		return false
	}
}

// fail fails if the request asks for it with X-Fail, once the order exists. With X-Commit: 1 the
// order is never placed again: without, a retry of a failure places another one.
func fail(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("X-Commit") == "1" {
		if err := lock.Commit(r.Context()); err != nil {
			refuse(w, r, http.StatusInternalServerError, "X-Commit needs an Idempotency-Key and its lease. The order exists.")
			return true
		}
	}
	switch r.Header.Get("X-Fail") {
	case "":
		return false
	case "panic":
		panic("X-Fail asked for this")
	case "hang":
		<-r.Context().Done()
	}
	refuse(w, r, http.StatusInternalServerError, "X-Fail asked for this. The order exists.")
	return true
}

// payOrder is POST /orders/{id}/pay. It runs under the lock of its order.
func (d *desk) payOrder(w http.ResponseWriter, r *http.Request) {
	id, _ := orderID(r)
	if !work(r, d.cfg.work) {
		refuse(w, r, http.StatusServiceUnavailable, "The lock was lost before the work was done; nothing was done.")
		return
	}
	if _, ok := d.orders.get(id, true); !ok {
		refuse(w, r, http.StatusNotFound, "This desk knows no such order.")
		return
	}
	answer(w, http.StatusOK, map[string]string{"id": id, "status": "paid"})
}

// showOrder is GET /orders/{id}.
func (d *desk) showOrder(w http.ResponseWriter, r *http.Request) {
	id, _ := orderID(r)
	found, ok := d.orders.get(id, false)
	if !ok {
		refuse(w, r, http.StatusNotFound, "This desk knows no such order.")
		return
	}
	answer(w, http.StatusOK, found)
}

// listOrders is GET /orders?user=U.
func (d *desk) listOrders(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	answer(w, http.StatusOK, d.orders.of(r.URL.Query().Get("user")))
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
