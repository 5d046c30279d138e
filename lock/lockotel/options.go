package lockotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option configures a [Telemetry] in [New].
type Option interface{ apply(c *config) }

type option func(c *config)

func (o option) apply(c *config) { o(c) }

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	label   func(ctx context.Context, labels ...attribute.KeyValue)
}

// WithMeterProvider sets where metrics go: to the global provider unless set.
// It panics if p is nil.
func WithMeterProvider(p metric.MeterProvider) Option {
	if p == nil {
		panic("lockotel: WithMeterProvider(nil)")
	}
	return option(func(c *config) { c.meters = p })
}

// WithTracerProvider sets where spans go: to the global provider unless set.
// It panics if p is nil.
func WithTracerProvider(p trace.TracerProvider) Option {
	if p == nil {
		panic("lockotel: WithTracerProvider(nil)")
	}
	return option(func(c *config) { c.tracers = p })
}

// WithLabeler calls label to add the outcome of a request, lock.outcome or
// idempotency.outcome, to metrics of another package. With otelhttp, on which this package does
// not depend, the metrics of requests then distinguish replays from first answers, by route:
//
//	lockotel.WithLabeler(func(ctx context.Context, labels ...attribute.KeyValue) {
//		if labeler, ok := otelhttp.LabelerFromContext(ctx); ok {
//			labeler.Add(labels...)
//		}
//	})
//
// label is called on the request's goroutine. For work that runs although the store failed, it
// is called a second time, with failed_open in place of the failure. WithLabeler panics if
// label is nil.
func WithLabeler(label func(ctx context.Context, labels ...attribute.KeyValue)) Option {
	if label == nil {
		panic("lockotel: WithLabeler(nil)")
	}
	return option(func(c *config) { c.label = label })
}
