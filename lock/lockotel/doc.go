// Package lockotel reports the events of a [lock.Locker], and of the middleware over
// it, to OpenTelemetry: as metrics, as spans, and on the span of the
// request. It needs only the OpenTelemetry API. The program's own providers export the
// data.
//
//	telemetry := lockotel.New()
//	locker := lock.New(store, lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
//	stop := telemetry.Watch(locker) // gauges, until stop
//
// # Metrics
//
// docs/telemetry.md lists all of them with type, labels, meaning and when to act. lock.* is for
// mutual exclusion and leases, idempotency.* for [lock.Locker.Once], middleware.Idempotent and
// middleware.Dedupe. Durations are in seconds. Their histograms advise boundaries from half a
// millisecond to ten seconds, and to an hour for the time that a key was held.
//
// The attribute "policy" is the name part of a key: "user" in lock.Key("user", "42"). No
// attribute of a metric contains a key, a user, a path or an error's text. A program may
// compose keys without lock.Key, so at most 64 names are distinguished; later ones are
// "_OTHER". The same holds for error.type.
//
// # Traces
//
// A wait for another holder is a span, and so is every recovery: a claim that was answered only
// when it was sent again, a takeover from a holder that had vanished, the clean-up of a claim
// without an answer. The span of the request has lock.outcome and idempotency.outcome. With
// [Origin], a span is linked with the span of another request: the one whose receipt it
// returned, whose lease refused it, or whose work it took over.
package lockotel
