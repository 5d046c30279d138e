package main

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// desk is the application: orders, and the locks that guard them.
type desk struct {
	cfg      config
	store    lock.Store
	locker   *lock.Locker
	orders   *orders
	metrics  *metrics
	draining atomic.Bool // a signal has come
}

func newDesk(cfg config, store lock.Store, logger *slog.Logger) *desk {
	m := newMetrics()
	opts := []lock.Option{
		lock.WithLease(cfg.lease),
		lock.WithBudget(cfg.budget),
		lock.WithObserver(m.observe),
		lock.WithLogger(logger),
	}
	if cfg.fencing {
		opts = append(opts, lock.WithFencing())
	}
	return &desk{cfg: cfg, store: store, locker: lock.New(store, opts...), orders: newOrders(), metrics: m}
}

// route is one row of the table that both routers serve.
type route struct {
	method, path string
	handler      http.Handler
}

func (d *desk) routes() []route {
	var perUser []latch.LockOption
	if d.cfg.cooldown > 0 {
		perUser = append(perUser, latch.WithCooldown(d.cfg.cooldown))
	}
	onePerUser := latch.Lock(d.locker, "user", userID, perUser...)
	onePerOrder := latch.Lock(d.locker, "order", orderID)

	// Outside of the locks: a replay must not meet a cool-down. A key of a client
	// counts for its user; whose a payment is, its path says.
	receipts := d.locker
	if d.cfg.rerun {
		receipts = receipts.With(lock.WithRerunAbandoned())
	}
	onceIfAsked := latch.Idempotent(receipts, userID, keyfunc.Optional(keyfunc.IdempotencyKey), latch.WithFinal(placed))
	once := latch.Idempotent(receipts, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithFinal(placed))

	console := latch.Console(d.locker)
	return []route{
		{"GET", "/", http.HandlerFunc(page)},
		{"POST", "/orders", onceIfAsked(bodyFirst(onePerUser(http.HandlerFunc(d.createOrder))))},
		{"GET", "/orders", http.HandlerFunc(d.listOrders)},
		{"GET", "/orders/{id}", http.HandlerFunc(d.showOrder)},
		{"POST", "/orders/{id}/pay", once(onePerOrder(http.HandlerFunc(d.payOrder)))},
		{"GET", "/healthz", http.HandlerFunc(d.healthz)},
		{"GET", "/readyz", http.HandlerFunc(d.readyz)},
		{"GET", "/metrics", d.metrics.handler()},
		{"GET", "/locks", http.HandlerFunc(d.listLocks)},
		{"DELETE", "/locks", http.HandlerFunc(d.freeLock)},
		{"GET", "/console", console},
		{"POST", "/console", console},
		{"DELETE", "/console", console},
	}
}

// placed says which answers are kept: those of what was done. A refusal may come
// out differently in another process, or later, and takes no effect to say again.
func placed(status int) bool { return status < 400 }

// orderID is the order that a request is about.
var orderID = keyfunc.PathValue("id")

func (d *desk) handler() http.Handler {
	if d.cfg.router == "stdlib" {
		return cleanPaths(stdlibRouter(d.routes()))
	}
	return cleanPaths(chiRouter(d.routes()))
}
