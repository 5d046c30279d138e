package lockotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// instruments are the counters and histograms. Gauges are in Watch.
type instruments struct {
	lock, once decisions

	held      metric.Float64Histogram
	remaining metric.Float64Histogram
	renewals  metric.Int64Counter
	losses    metric.Int64Counter

	recoveries metric.Int64Counter
	bypasses   metric.Int64Counter
	failures   metric.Int64Counter

	replayAge   metric.Float64Histogram
	receiptSize metric.Int64Histogram
}

// decisions are the instruments of acquires, and likewise of requests to Once.
type decisions struct {
	decisions    metric.Int64Counter
	took, waited metric.Float64Histogram
}

// The boundaries of histograms, in seconds and bytes. The defaults of the SDK suit
// milliseconds.
var (
	brief = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	long  = []float64{.001, .005, .025, .1, .5, 1, 5, 15, 30, 60, 300, 900, 3600}
	ages  = []float64{.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}
	sizes = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

func newInstruments(meter metric.Meter) instruments {
	m := maker{meter}
	return instruments{
		lock: decisions{
			m.counter("lock.acquisitions", "{acquisition}", "Acquires of keys, and requests that needed none, by what became of them."),
			m.seconds("lock.acquire.duration", brief, "How long an acquire took to be granted or refused, waiting included."),
			m.seconds("lock.wait.duration", brief, "How long acquires waited for another holder, of those that did."),
		},
		once: decisions{
			m.counter("idempotency.requests", "{request}", "Requests to run something once, by what became of them."),
			m.seconds("idempotency.acquire.duration", brief, "How long it took to decide whether to run, to replay or to refuse, waiting included."),
			m.seconds("idempotency.wait.duration", brief, "How long requests waited for the answer of another, of those that did."),
		},
		held:        m.seconds("lock.hold.duration", long, "How long leases were held."),
		remaining:   m.seconds("lock.validity.remaining", long, "What was left of a lease when its work had ended."),
		renewals:    m.counter("lock.renewals", "{renewal}", "Renewals of leases."),
		losses:      m.counter("lock.losses", "{loss}", "Leases that ended before their work did."),
		recoveries:  m.counter("lock.recoveries", "{recovery}", "Repairs of what lost answers and dead processes left behind."),
		bypasses:    m.counter("lock.bypasses", "{bypass}", "Work that ran unprotected because the store gave no answer."),
		failures:    m.counter("lock.call.failures", "{call}", "Calls to the store that it did not serve within the budget."),
		replayAge:   m.seconds("idempotency.replay.age", ages, "How long ago the work had begun whose receipt was replayed."),
		receiptSize: m.bytes("idempotency.receipt.size", "Sizes of the receipts that were left."),
	}
}

// maker makes instruments. If a provider refuses, it reports the error to the error handler, and
// returns an instrument that does nothing.
type maker struct{ metric.Meter }

func (m maker) counter(name, unit, help string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	handle(err)
	return c
}

func (m maker) seconds(name string, bounds []float64, help string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(bounds...))
	handle(err)
	return h
}

func (m maker) bytes(name, help string) metric.Int64Histogram {
	h, err := m.Int64Histogram(name, metric.WithUnit("By"), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(sizes...))
	handle(err)
	return h
}

func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}
