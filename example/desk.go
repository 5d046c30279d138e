package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	latch "github.com/httplatch/httplatch/middleware"
)

// desk is the application: orders, and the locks that guard them.
type desk struct {
	cfg      config
	store    lock.Store
	locker   *lock.Locker
	lossy    lossyStore   // store, for the page, which may lose replies
	tries    *lock.Locker // over lossy
	orders   *orders
	metrics  *metrics
	draining atomic.Bool // a signal has come
}

func newDesk(cfg config, store lock.Store, logger *slog.Logger) *desk {
	m := newMetrics()
	opts := []lock.Option{
		lock.WithLease(cfg.lease),
		lock.WithBudget(cfg.budget),
		lock.WithObserver(m.locks.Observe),
		lock.WithOrigin(lockotel.Origin),
		lock.WithLogger(logger),
	}
	if cfg.fencing {
		opts = append(opts, lock.WithFencing())
	}
	lossy := lossyStore{store}
	locker := lock.New(store, opts...)
	m.locks.Watch(locker) // for as long as there is this desk
	return &desk{
		cfg:     cfg,
		store:   store,
		locker:  locker,
		lossy:   lossy,
		tries:   lock.New(lossy, opts...),
		orders:  newOrders(),
		metrics: m,
	}
}

// close ends the Lockers, both at once.
func (d *desk) close(ctx context.Context) error {
	tries := make(chan error, 1)
	go func() { tries <- d.tries.Close(ctx) }()
	return errors.Join(d.locker.Close(ctx), <-tries)
}

// perUser is how the lock of a user's orders differs from any.
func (d *desk) perUser() []latch.LockOption {
	if d.cfg.cooldown > 0 {
		return []latch.LockOption{latch.WithCooldown(d.cfg.cooldown)}
	}
	return nil
}

// route is one row of the table that both routers serve.
type route struct {
	method, path string
	handler      http.Handler
}

func (d *desk) routes() []route {
	onePerUser := latch.Lock(d.locker, "user", userID, d.perUser()...)
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
	return append(assetRoutes(), []route{
		{"GET", "/", http.HandlerFunc(d.showPage)},
		{"GET", "/try", http.HandlerFunc(d.showLockout)},
		{"POST", "/try", d.tryOrder()},
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
	}...)
}

// placed says which answers are kept: those of what was done. A refusal may come
// out differently in another process, or later, and takes no effect to say again.
func placed(status int) bool { return status < 400 }

// orderID is the order that a request is about.
var orderID = keyfunc.PathValue("id")

func (d *desk) handler() http.Handler {
	routes := d.metrics.measured(d.routes())
	if d.cfg.router == "stdlib" {
		return cleanPaths(stdlibRouter(routes))
	}
	return cleanPaths(chiRouter(routes))
}
