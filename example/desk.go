package main

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

var (
	// userID is the user of a request. A real desk takes it from its authentication, with keyfunc.Context.
	userID = keyfunc.Header("X-User-ID")

	// orderID is the order in the path of a request.
	orderID = keyfunc.PathValue("id")
)

// desk is the application behind the guards.
type desk struct {
	cfg    config
	locker *lock.Locker
	orders orders
}

func newDesk(cfg config, locker *lock.Locker) http.Handler {
	d := &desk{cfg: cfg, locker: locker}

	// An order: one at a time for each user, and once for each key, if the client sends one.
	onePerUser := latch.Lock(locker, "user", userID, latch.WithBodyFirst(maxBody))
	once := latch.Idempotent(locker, userID, keyfunc.Optional(keyfunc.IdempotencyKey))

	// A payment: one at a time for each order, and once for each key, which it needs.
	onePerOrder := latch.Lock(locker, "order", orderID)
	paidOnce := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithName("payment"))

	r := chi.NewRouter()
	r.With(once, onePerUser).Post("/orders", d.createOrder) // in this order: an answer that is sent again meets no lock
	r.With(paidOnce, onePerOrder).Post("/orders/{id}/pay", d.payOrder)
	r.Get("/orders", d.listOrders)
	r.Get("/orders/{id}", d.showOrder)
	r.Get("/healthz", func(http.ResponseWriter, *http.Request) {}) // asks no other service: a restart would not help
	r.Get("/readyz", d.readyz)
	r.Handle("/console", console.New(locker, console.WithName("order desk, trial"))) // for operators: who has a key and why
	return r
}

// readyz is GET /readyz. It takes and releases a key of its own, since a store that is full or
// read-only still answers a read.
func (d *desk) readyz(w http.ResponseWriter, r *http.Request) {
	nothing := func(context.Context) error { return nil }
	if p := latch.ProblemOf(d.locker.Do(r.Context(), lock.Key("readyz", rand.Text()), nothing)); p != nil {
		p.ServeHTTP(w, r)
	}
}
