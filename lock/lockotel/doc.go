// Package lockotel reports what a [lock.Locker] does, and the middleware over
// it, through OpenTelemetry: as metrics, as spans, and on the span of the
// request. It needs the OpenTelemetry API only; what becomes of the data is up
// to the providers that the program has set up.
//
//	telemetry := lockotel.New()
//	locker := lock.New(store, lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
//	stop := telemetry.Watch(locker) // gauges, until stop
//
// # Metrics
//
// docs/telemetry.md lists all of them with unit, labels, meaning and when to
// act. Metrics of lock.* are of mutual exclusion and of leases, those of
// idempotency.* of [lock.Locker.Once], middleware.Idempotent and
// middleware.Dedupe. Durations are in seconds, and advise boundaries from half
// a millisecond to ten seconds, or for how long a key was held to an hour.
//
// The attribute "policy" is the name that a key was given, such as the "user"
// of lock.Key("user", "42"). No attribute of a metric is ever made of a key, a
// user, a path or an error's text. As a program may compose its keys by other
// means than lock.Key, at most 64 names are distinguished; later ones come
// under "_OTHER". The same holds for error.type.
//
// # Traces
//
// A wait for another holder is a span, and so is every recovery: a claim that
// was answered only when it was sent again, work that was taken over from a
// holder that had vanished, the clean-up of a claim that got no answer. The
// span of the request bears lock.outcome and idempotency.outcome. With
// [Origin], a span is linked with that of the request whose receipt it was
// answered with, whose lease it was refused by or whose work it took over.
package lockotel
