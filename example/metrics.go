package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/httplatch/httplatch/lock"
)

// metrics is what GET /metrics tells Prometheus.
type metrics struct {
	registry *prometheus.Registry
	events   *prometheus.CounterVec
	orders   prometheus.Counter
	payments prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "httplatch_events_total",
			Help: "What happened to locks, by the name of the lock and the kind of event.",
		}, []string{"name", "event"}),
		orders: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "desk_orders_total", Help: "Orders that were placed.",
		}),
		payments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "desk_payments_total", Help: "Payments that were made.",
		}),
	}
	m.registry.MustRegister(m.events, m.orders, m.payments,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe counts what the Locker reports. Event.Key never becomes a label:
// there are as many as users.
func (m *metrics) observe(_ context.Context, e lock.Event) {
	m.events.WithLabelValues(e.Name, string(e.Kind)).Inc()
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
