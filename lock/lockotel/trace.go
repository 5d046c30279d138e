package lockotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/event"
)

// trace reports e on the span of its request, and makes a span for a wait or a recovery. It makes
// the span afterwards, since only then is it known that there was one.
func (t *Telemetry) trace(ctx context.Context, e lock.Event, now time.Time) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		mark(ctx, span, e)
	}
	if e.Waited > 0 {
		name := "lock wait"
		if e.Once {
			name = "idempotency wait"
		}
		t.past(ctx, name, e, now, attribute.String("outcome", outcomeOf(ctx, e)))
	}
	switch e.Kind {
	case event.Recovered:
		t.past(ctx, "lock recovery", e, now, attribute.String("kind", "reclaimed"))
	case event.TakenOver:
		t.past(ctx, "lock recovery", e, now, attribute.String("kind", "taken_over"), attribute.Int("attempt", e.Attempt))
	case event.Reaped:
		t.past(ctx, "lock recovery", e, now, attribute.String("kind", "removed"))
	case event.Claimed, event.Resumed, event.Refused, event.Replayed, event.Renewed, event.Lost, event.Released,
		event.Settled, event.HandedOver, event.Unknown, event.Unavailable, event.Bypassed, event.Skipped, event.Rejected:
	}
}

// past makes a span of e's duration that ends now.
func (t *Telemetry) past(ctx context.Context, name string, e lock.Event, now time.Time, attrs ...attribute.KeyValue) {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(now.Add(-e.Took)),
		trace.WithAttributes(append(attrs, attribute.String("policy", e.Name))...))
	if from := traceOf(e.Owner); from.IsValid() {
		span.AddLink(trace.Link{SpanContext: from})
	}
	span.End(trace.WithTimestamp(now))
}

// mark sets the outcome of a request on its span. A refusal is no error: it is the guard's
// purpose.
func mark(ctx context.Context, span trace.Span, e lock.Event) {
	if outcome := outcomeOf(ctx, e); outcome != "" {
		span.SetAttributes(outcomeKey(e).String(outcome))
	}
	if from := traceOf(e.Owner); from.IsValid() {
		span.AddLink(trace.Link{SpanContext: from})
	}
	switch e.Kind {
	case event.Replayed:
		span.SetAttributes(attribute.Bool("idempotency.replayed", true))
	case event.Refused:
		if errors.Is(e.Err, lock.ErrAbandoned) {
			span.AddEvent("idempotency.unknown_outcome")
		}
	case event.Lost:
		span.AddEvent("lock.lost", trace.WithAttributes(attribute.String("reason", lock.Class(e.Err))))
		span.SetStatus(codes.Error, "lease lost")
	case event.Bypassed:
		span.SetAttributes(outcomeKey(e).String(failedOpen))
		span.AddEvent("lock.bypassed")
	case event.Unknown, event.Unavailable:
		span.AddEvent("lock.call_failed", trace.WithAttributes(
			attribute.String("operation", e.Call), attribute.String("outcome", failureOf(e.Kind)), attribute.String("error.type", lock.Class(e.Err))))
	case event.Claimed, event.Recovered, event.TakenOver, event.Resumed, event.Renewed, event.Released,
		event.Settled, event.HandedOver, event.Reaped, event.Skipped, event.Rejected:
	}
}
