package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/httplatch/httplatch/lock/lockotel"
)

// metrics are the metrics that GET /metrics reports to Prometheus: of the locks
// and the requests, through OpenTelemetry, and of the orders. A dashboard and
// alerts for them are in the directory monitoring.
type metrics struct {
	registry *prometheus.Registry
	meters   *metric.MeterProvider
	locks    *lockotel.Telemetry
	orders   prometheus.Counter
	payments prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		orders: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "desk_orders_total", Help: "Orders that were placed, and with -postgres, -mysql or -sqlite also those that were rolled back.",
		}),
		payments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "desk_payments_total", Help: "Payments that were made, and with -postgres, -mysql or -sqlite also those that were rolled back.",
		}),
	}
	m.registry.MustRegister(m.orders, m.payments,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(m.registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		panic(fmt.Sprintf("a registry of our own refuses a metric: %v", err))
	}
	m.meters = metric.NewMeterProvider(metric.WithReader(exporter), metric.WithView(bounded))
	m.locks = lockotel.New(lockotel.WithMeterProvider(m.meters), lockotel.WithLabeler(label))
	return m
}

// bounded keeps only the attributes of otelhttp's metrics that no client can
// choose. A client chooses server.address by its Host header.
var bounded = metric.NewView(
	metric.Instrument{Name: "http.server.*"},
	metric.Stream{AttributeFilter: attribute.NewAllowKeysFilter(
		"http.request.method", "http.response.status_code", "http.route", "lock.outcome", "idempotency.outcome",
	)},
)

// label adds the result of the guards to the metrics of a request.
func label(ctx context.Context, labels ...attribute.KeyValue) {
	if labeler, ok := otelhttp.LabelerFromContext(ctx); ok {
		labeler.Add(labels...)
	}
}

// measured returns routes whose requests are counted and timed.
func (m *metrics) measured(routes []route) []route {
	for i, rt := range routes {
		labeled := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			label(r.Context(), attribute.String("http.route", rt.path))
			rt.handler.ServeHTTP(w, r)
		})
		routes[i].handler = otelhttp.NewHandler(labeled, rt.path, otelhttp.WithMeterProvider(m.meters))
	}
	return routes
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
