package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/httplatch/httplatch/example/internal/page"
	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/middleware/console"
)

// desk is the application: orders, and the locks that guard them.
type desk struct {
	cfg      config
	store    lock.Store
	locker   *lock.Locker
	guards   guards
	stage    *page.Stage // for the page: over a store that may lose replies
	orders   orders
	jobs     jobs // nil: none are kept
	metrics  *metrics
	logger   *slog.Logger
	draining atomic.Bool  // a signal has come
	unready  atomic.Value // string: the class of the failure, "" if the store takes locks
}

func newDesk(cfg config, b backend, logger *slog.Logger) (*desk, error) {
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
	if cfg.transactions() {
		opts = append(opts, lock.WithTransaction())
	}
	locker := lock.New(b.store, opts...)
	mounted, err := newGuards(cfg, locker)
	if err != nil {
		return nil, err
	}
	m.locks.Watch(locker) // for as long as there is this desk
	return &desk{
		cfg:     cfg,
		store:   b.store,
		locker:  locker,
		guards:  mounted,
		stage:   page.NewStage(b.store, cfg.budget, opts...),
		orders:  b.orders,
		jobs:    b.jobs,
		metrics: m,
		logger:  logger,
	}, nil
}

// close ends the Lockers, both at once.
func (d *desk) close(ctx context.Context) error {
	tries := make(chan error, 1)
	go func() { tries <- d.stage.Locker.Close(ctx) }()
	return errors.Join(d.locker.Close(ctx), <-tries)
}

// route is one row of the table that both routers serve.
type route struct {
	method, path string
	handler      http.Handler
}

func (d *desk) routes() []route {
	locks := console.New(d.locker, console.WithName("order desk, trial"))
	return []route{
		{"GET", "/", http.HandlerFunc(d.showPage)},
		{"GET", "/try", http.HandlerFunc(d.showTry)},
		{"POST", "/try", d.tryOrder()},
		{"POST", "/orders", d.guards.orderOnce(bodyFirst(d.guards.orderLock(http.HandlerFunc(d.createOrder))))},
		{"POST", "/carts", d.guards.orderOnce(bodyFirst(http.HandlerFunc(d.createCart)))},
		{"POST", "/exports", threeExports(d.locker)(http.HandlerFunc(d.exportOrders))},
		{"GET", "/orders", http.HandlerFunc(d.listOrders)},
		{"GET", "/orders/{id}", http.HandlerFunc(d.showOrder)},
		{"POST", "/orders/{id}/pay", d.guards.payOnce(d.guards.payLock(http.HandlerFunc(d.payOrder)))},
		{"GET", "/healthz", http.HandlerFunc(d.healthz)},
		{"GET", "/readyz", http.HandlerFunc(d.readyz)},
		{"GET", "/metrics", d.metrics.handler()},
		{"GET", "/locks", http.HandlerFunc(d.listLocks)},
		{"DELETE", "/locks", http.HandlerFunc(d.freeLock)},
		{"GET", "/console", locks},
		{"POST", "/console", locks},
		{"DELETE", "/console", locks},
		{"GET", "/assets/{name}", http.HandlerFunc(page.Asset)},
		{"GET", "/assets/latch.js", form.Script()},
	}
}

func (d *desk) handler() http.Handler {
	routes := d.metrics.measured(d.routes())
	if d.cfg.router == "stdlib" {
		return cleanPaths(stdlibRouter(routes))
	}
	return cleanPaths(chiRouter(routes))
}
