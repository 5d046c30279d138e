package lockotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/httplatch/httplatch/lock"
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
	case lock.EventRecovered:
		t.past(ctx, "lock recovery", e, now, attribute.String("kind", "reclaimed"))
	case lock.EventTakenOver:
		t.past(ctx, "lock recovery", e, now, attribute.String("kind", "taken_over"), attribute.Int("attempt", e.Attempt))
	case lock.EventReaped:
		t.past(ctx, "lock recovery", e, now, attribute.String("kind", "removed"))
	case lock.EventClaimed, lock.EventResumed, lock.EventRefused, lock.EventReplayed, lock.EventRenewed, lock.EventLost, lock.EventReleased,
		lock.EventSettled, lock.EventHandedOver, lock.EventUnknown, lock.EventUnavailable, lock.EventBypassed, lock.EventSkipped, lock.EventRejected:
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
	case lock.EventReplayed:
		span.SetAttributes(attribute.Bool("idempotency.replayed", true))
	case lock.EventRefused:
		if errors.Is(e.Err, lock.ErrAbandoned) {
			span.AddEvent("idempotency.unknown_outcome")
		}
	case lock.EventLost:
		span.AddEvent("lock.lost", trace.WithAttributes(attribute.String("reason", lock.Class(e.Err))))
		span.SetStatus(codes.Error, "lease lost")
	case lock.EventBypassed:
		span.SetAttributes(outcomeKey(e).String(failedOpen))
		span.AddEvent("lock.bypassed")
	case lock.EventUnknown, lock.EventUnavailable:
		span.AddEvent("lock.call_failed", trace.WithAttributes(
			attribute.String("operation", e.Call), attribute.String("outcome", failureOf(e.Kind)), attribute.String("error.type", lock.Class(e.Err))))
	case lock.EventClaimed, lock.EventRecovered, lock.EventTakenOver, lock.EventResumed, lock.EventRenewed, lock.EventReleased,
		lock.EventSettled, lock.EventHandedOver, lock.EventReaped, lock.EventSkipped, lock.EventRejected:
	}
}
