package lockotel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/httplatch/httplatch/lock"
)

// Watch reports the gauges of l, and of all Lockers made from it by With, until stop is called:
// the number in flight, the backlog of the clean-up, the retry budget, the last check of the
// store, the entries and bytes of an embedded store, and the submissions that the last
// [lock.Locker.Unfinished] has found. Watch one Locker of each store: the
// gauges have no attributes, so a second one would overwrite the first. It panics if l is nil.
func (t *Telemetry) Watch(l *lock.Locker) (stop func()) {
	if l == nil {
		panic("lockotel: Watch(nil)")
	}
	inflight, err := t.meter.Int64ObservableUpDownCounter("lock.inflight", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that are held, acquires under way, and work that runs unprotected."))
	handle(err)
	backlog, err := t.meter.Int64ObservableGauge("lock.reaper.backlog", metric.WithUnit("{entry}"),
		metric.WithDescription("Clean-ups, releases and settles that still lack the store's answer."))
	handle(err)
	waiting, err := t.meter.Int64ObservableGauge("lock.reaper.size", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the receipts that still lack the store's answer; 64 MiB at the most."))
	handle(err)
	dropped, err := t.meter.Int64ObservableCounter("lock.reaper.dropped", metric.WithUnit("{entry}"),
		metric.WithDescription("Clean-ups that were given up for newer ones. Their entries end with their leases."))
	handle(err)
	retries, err := t.meter.Int64ObservableGauge("lock.retry.budget", metric.WithUnit("{token}"),
		metric.WithDescription("How often a call may be sent again, or something be cleaned up, right now."))
	handle(err)
	trouble, err := t.meter.Int64ObservableGauge("lock.store.trouble", metric.WithUnit("{finding}"),
		metric.WithDescription("1 if the last check of the store has found something wrong, which is repeated once a minute of use; else 0."))
	handle(err)
	entries, err := t.meter.Int64ObservableGauge("idempotency.store.entries", metric.WithUnit("{entry}"),
		metric.WithDescription("Entries of the embedded store, locks included; 0 for any other."))
	handle(err)
	size, err := t.meter.Int64ObservableGauge("idempotency.store.size", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the embedded store, as its limit counts them; 0 for any other."))
	handle(err)

	unfinished, err := t.meter.Int64ObservableGauge("idempotency.unfinished", metric.WithUnit("{submission}"),
		metric.WithDescription("Submissions that were begun and not finished, as of the last Locker.Unfinished in this process."))
	handle(err)

	registration, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		stats := l.Stats()
		o.ObserveInt64(inflight, int64(stats.Active))
		o.ObserveInt64(backlog, int64(stats.Backlog))
		o.ObserveInt64(waiting, stats.BacklogBytes)
		o.ObserveInt64(dropped, stats.Dropped)
		o.ObserveInt64(retries, int64(stats.Retries))
		if stats.Trouble == "" {
			o.ObserveInt64(trouble, 0)
		} else {
			o.ObserveInt64(trouble, 1, metric.WithAttributes(attribute.String("error.type", stats.Trouble)))
		}
		o.ObserveInt64(entries, int64(stats.Entries))
		o.ObserveInt64(size, stats.Bytes)
		o.ObserveInt64(unfinished, int64(stats.Unfinished))
		return nil
	}, inflight, backlog, waiting, dropped, retries, trouble, entries, size, unfinished)
	if err != nil {
		handle(err)
		return func() {}
	}
	return sync.OnceFunc(func() { handle(registration.Unregister()) })
}
