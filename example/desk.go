package main

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/httplatch/httplatch/example/internal/page"
	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

// desk is the application behind the guards.
type desk struct {
	cfg    config
	locker *lock.Locker
	orders orders
	stage  *page.Stage // orders of the page, which has guards of its own
}

func newDesk(cfg config, store lock.Store) *desk {
	opts := []lock.Option{lock.WithLease(cfg.lease), lock.WithBudget(cfg.budget)}
	return &desk{cfg: cfg, locker: lock.New(store, opts...), stage: page.NewStage(store, cfg.budget, opts...)}
}

var (
	userID  = keyfunc.Header("X-User-ID") // a real desk has the user from its authentication, by keyfunc.Context
	orderID = keyfunc.PathValue("id")
)

func (d *desk) routes() http.Handler {
	// An order: one at a time for each user, and once for each key, if the client sends one.
	onePerUser := latch.Lock(d.locker, "user", userID, latch.WithBodyFirst(64<<10))
	once := latch.Idempotent(d.locker, userID, keyfunc.Optional(keyfunc.IdempotencyKey))

	// A payment: one at a time for each order, and once for each key, which it must have. With users who sign in, the scope is userID.
	onePerOrder := latch.Lock(d.locker, "order", orderID)
	paidOnce := latch.Idempotent(d.locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithName("payment"))

	r := chi.NewRouter()
	r.With(once, onePerUser).Post("/orders", d.createOrder) // in this order: a repeat of an answer meets no lock
	r.With(paidOnce, onePerOrder).Post("/orders/{id}/pay", d.payOrder)
	r.Get("/orders", d.listOrders)
	r.Get("/orders/{id}", d.showOrder)
	r.Get("/healthz", func(http.ResponseWriter, *http.Request) {}) // asks no store: a restart would not help it
	r.Get("/readyz", d.readyz)
	r.Handle("/console", console.New(d.locker, console.WithName("order desk, trial"))) // for operators: who has a key, and why

	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { page.New().Show(w, http.StatusOK) })
	r.Get("/assets/{name}", page.Asset)
	r.Method(http.MethodGet, "/assets/latch.js", form.Script()) // sends a form again, with its key, if no answer comes
	r.Get("/try", d.stage.State)
	r.Post("/try", http.NewCrossOriginProtection().Handler(d.stage.Try(
		latch.Idempotent(d.stage.Locker, keyfunc.Form("user"), keyfunc.Form("once")), // of a form
		latch.Lock(d.stage.Locker, "user", keyfunc.Form("user")),
		http.HandlerFunc(d.createOrder),
	)).ServeHTTP)
	return r
}

// readyz is GET /readyz. It takes a lock of its own: a store that is full still answers a read.
func (d *desk) readyz(w http.ResponseWriter, r *http.Request) {
	nothing := func(context.Context) error { return nil }
	if p := latch.ProblemOf(d.locker.Do(r.Context(), lock.Key("readyz", rand.Text()), nothing)); p != nil {
		p.ServeHTTP(w, r)
	}
}
