package lockotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/httplatch/httplatch/lock"
)

// scope names this package as the source of its metrics and spans.
const scope = "github.com/httplatch/httplatch/lock/lockotel"

// Telemetry reports the events of Lockers. It is safe for concurrent use by several Lockers. It
// has no goroutine and nothing to close.
type Telemetry struct {
	meter       metric.Meter
	tracer      trace.Tracer
	label       func(ctx context.Context, labels ...attribute.KeyValue)
	instruments instruments
	sets        sets
}

// New returns a Telemetry for the global providers, or for the ones in the options. If a provider
// refuses an instrument, OpenTelemetry's error handler gets the error, and the instrument
// reports nothing.
func New(opts ...Option) *Telemetry {
	cfg := config{
		meters:  otel.GetMeterProvider(),
		tracers: otel.GetTracerProvider(),
		label:   func(context.Context, ...attribute.KeyValue) {},
	}
	for _, o := range opts {
		if o == nil {
			panic("lockotel: nil Option")
		}
		o.apply(&cfg)
	}
	meter := cfg.meters.Meter(scope)
	return &Telemetry{
		meter:       meter,
		tracer:      cfg.tracers.Tracer(scope),
		label:       cfg.label,
		instruments: newInstruments(meter),
		sets:        newSets(),
	}
}

// Observe reports e. Give it to [lock.WithObserver].
func (t *Telemetry) Observe(ctx context.Context, e lock.Event) {
	now := time.Now()
	if t.sets.meets(e.Name, e.Once) {
		t.introduce(ctx, e.Name, e.Once)
	}
	if outcome := outcomeOf(ctx, e); outcome != "" {
		t.decided(ctx, e, outcome, now)
	}
	t.count(ctx, e)
	t.trace(ctx, e, now)
}

// introduce creates, at zero, the counters of a policy that alerts watch. A counter that first
// appears with the value 1 never increases for an alert.
func (t *Telemetry) introduce(ctx context.Context, policy string, once bool) {
	in := &t.instruments
	kind, outcomes := &in.lock, []string{"unknown", "error"}
	if once {
		kind, outcomes = &in.once, append(outcomes, "abandoned")
	}
	for _, outcome := range outcomes {
		kind.decisions.Add(ctx, 0, t.sets.of(policy, "outcome", outcome))
	}
	for _, reason := range []string{"expired", "taken", "max_hold"} {
		in.losses.Add(ctx, 0, t.sets.of(policy, "reason", reason))
	}
	in.bypasses.Add(ctx, 0, t.sets.of(policy, "", ""))
	for _, k := range []string{"reclaimed", "taken_over", "removed"} {
		in.recoveries.Add(ctx, 0, t.sets.of(policy, "kind", k))
	}
}

// decided reports the outcome of a request or an acquire.
func (t *Telemetry) decided(ctx context.Context, e lock.Event, outcome string, now time.Time) {
	if e.Kind == lock.EventRejected { // the others are of a closed set
		outcome = t.sets.bounded(t.sets.classes, outcome)
	}
	with := t.sets.of(e.Name, "outcome", outcome)
	in := &t.instruments.lock
	if e.Once {
		in = &t.instruments.once
	}
	in.decisions.Add(ctx, 1, with)
	if e.Kind != lock.EventSkipped && e.Kind != lock.EventRejected { // these two are decided without a Locker
		in.took.Record(ctx, e.Took.Seconds(), with)
	}
	if e.Waited > 0 {
		in.waited.Record(ctx, e.Waited.Seconds(), with)
	}
	if e.Kind == lock.EventReplayed {
		if began, ok := beganAt(e.Owner); ok {
			t.instruments.replayAge.Record(ctx, max(now.Sub(began), 0).Seconds(), t.sets.of(e.Name, "", ""))
		}
	}
	t.label(ctx, outcomeKey(e).String(outcome))
}

// count counts the events of leases, and failed calls to the store.
func (t *Telemetry) count(ctx context.Context, e lock.Event) {
	in := &t.instruments
	switch e.Kind {
	case lock.EventRecovered:
		in.recoveries.Add(ctx, 1, t.sets.of(e.Name, "kind", "reclaimed"))
	case lock.EventTakenOver:
		in.recoveries.Add(ctx, 1, t.sets.of(e.Name, "kind", "taken_over"))
	case lock.EventReaped:
		in.recoveries.Add(ctx, 1, t.sets.of(e.Name, "kind", "removed"))
	case lock.EventRenewed:
		in.renewals.Add(ctx, 1, t.sets.of(e.Name, "outcome", "ok"))
	case lock.EventLost:
		in.losses.Add(ctx, 1, t.sets.of(e.Name, "reason", t.sets.classOf(e.Err)))
		in.held.Record(ctx, e.Took.Seconds(), t.sets.of(e.Name, "end", "lost"))
	case lock.EventReleased, lock.EventSettled, lock.EventHandedOver:
		in.held.Record(ctx, e.Took.Seconds(), t.sets.of(e.Name, "end", string(e.Kind)))
		in.remaining.Record(ctx, e.Left.Seconds(), t.sets.of(e.Name, "", ""))
		if e.Once && e.Kind == lock.EventSettled {
			in.receiptSize.Record(ctx, int64(e.Size), t.sets.of(e.Name, "", ""))
		}
	case lock.EventBypassed:
		in.bypasses.Add(ctx, 1, t.sets.of(e.Name, "", ""))
		t.label(ctx, outcomeKey(e).String(failedOpen))
	case lock.EventUnknown, lock.EventUnavailable:
		if lock.Class(e.Err) == cancelled {
			return // the store is not to blame
		}
		in.failures.Add(ctx, 1, t.sets.failure(e.Call, failureOf(e.Kind), t.sets.classOf(e.Err)))
		if e.Call == "renew" {
			in.renewals.Add(ctx, 1, t.sets.of(e.Name, "outcome", failureOf(e.Kind)))
		}
	case lock.EventClaimed, lock.EventResumed, lock.EventRefused, lock.EventReplayed, lock.EventSkipped, lock.EventRejected:
	}
}
